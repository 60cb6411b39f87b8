//! What a viewer sees of a real sender: ffmpeg sends what x264 encoded over a link that is too narrow for it, and ffmpeg
//! decodes what arrives. A picture counts if it is exactly the one that was encoded. In virtual time.

use bestby_tests::ffmpeg::{PICTURES, read_and_blind};
use bestby_tests::require;

/// B pictures that no other needs go first, half of the pictures, evenly.
#[test]
fn pictures_of_ffmpeg_are_decoded_in_mode_qdisc() {
    if let Some([read, blind]) = read_and_blind("qdisc", "700kbit", require::bpf_qdisc()) {
        assert!(read * 3 >= PICTURES && read >= 2 * blind, "{read}, {blind}");
    }
}
