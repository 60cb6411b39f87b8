//! What a viewer sees of a real sender: ffmpeg sends what x264 encoded over a link that is too narrow for it, and ffmpeg
//! decodes what arrives. A picture counts if it is exactly the one that was encoded. On this kernel.

use bestby_tests::ffmpeg::{PICTURES, read_and_blind};
use bestby_tests::require;

/// Mode tc decides as packets come. There are no parameter sets but those in the stream.
#[test]
fn pictures_of_ffmpeg_are_decoded_in_mode_tc() {
    if let Some([read, blind]) = read_and_blind("tc", "700kbit", require::root()) {
        assert!(read * 3 >= PICTURES && read > blind, "{read}, {blind}");
    }
}
