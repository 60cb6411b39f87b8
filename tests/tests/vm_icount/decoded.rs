//! What a viewer sees of a real sender: ffmpeg sends what x264 encoded over a link that is too narrow for it, and ffmpeg
//! decodes what arrives. A picture counts if it is exactly the one that was encoded.
//!
//! In virtual time. The media are encoded before; while it sends, ffmpeg only copies them.

use std::fs;
use std::path::Path;

use bestby_tests::agent::{drops, wait_for};
use bestby_tests::load::PEER;
use bestby_tests::netns::{Lab, Netns, linked_lab};
use bestby_tests::program::{InMemory, succeed};
use bestby_tests::require;

use crate::ffmpeg_lab::{PORT, agent, ffmpeg, make_media, sums};

/// Pictures that arrive and are decoded exactly, of those that were sent.
fn exact(program: &InMemory, lab: &Lab, peer: &Netns, media: &Path) -> usize {
    let directory = media.parent().unwrap();
    let [sent, came, sdp] = ["sent.md5", "came.md5", "video.sdp"].map(|name| directory.join(name));
    let mut decode = ffmpeg(program, None);
    succeed(
        decode
            .arg("-y")
            .arg("-i")
            .arg(media)
            .args(["-f", "framemd5"])
            .arg(&sent),
    );
    fs::write(
        &sdp,
        format!(
            "v=0\no=- 0 0 IN IP4 {PEER}\ns=-\nc=IN IP4 {PEER}\nt=0 0\nm=video {PORT} RTP/AVP 96\n\
             a=rtpmap:96 H264/90000\na=fmtp:96 packetization-mode=1\n"
        ),
    )
    .unwrap();
    let _ = fs::remove_file(&came);
    let mut receive = ffmpeg(program, Some(peer));
    receive
        .args(["-protocol_whitelist", "file,udp,rtp", "-i"])
        .arg(&sdp);
    // It ends with the sender's BYE, or when nothing has come for 10 s.
    receive
        .args(["-fps_mode", "passthrough", "-f", "framemd5"])
        .arg(&came);
    let log = directory.join("receiver.log");
    receive.args(["-loglevel", "info"]);
    let mut receiver = receive
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    wait_for("the receiver's port", || {
        peer.run("ss -Huln").contains(&format!(":{PORT} "))
    });
    let mut send = ffmpeg(program, Some(&lab.netns));
    send.arg("-re")
        .arg("-i")
        .arg(media)
        .args(["-c", "copy", "-f", "rtp"]);
    succeed(send.arg(format!("rtp://{PEER}:{PORT}?pkt_size=1200")));
    receiver.wait().unwrap();
    let exact = sums(&came).intersection(&sums(&sent)).count();
    if exact == 0 {
        println!("{}", fs::read_to_string(&log).unwrap());
    }
    exact
}

/// Exact pictures of so many over a link of this rate, where bestby reads them and where it may not.
fn read_and_blind(mode: &str, rate: &str, probe: Result<(), String>) -> Option<[usize; 2]> {
    let mut pictures = None;
    linked_lab(probe, |lab, peer| {
        // The lab's own has no room for it.
        let directory = tempfile::tempdir().unwrap();
        let media = &directory.path().join("media.ts");
        let program = &InMemory::new("ffmpeg", directory.path());
        make_media(program, media, false);
        pictures = Some(["auto", "off"].map(|read| {
            let agent = agent(lab, mode, rate, read);
            let exact = exact(program, lab, peer, media);
            let counters = &agent.stats()["flows"]["video"];
            println!("{mode}, {rate}, media {read}: {exact} exact; {counters}");
            assert!(drops(counters, "dropped") > 0, "{counters}");
            agent.ok("DELETE", "/v1/interfaces/v0", None);
            exact
        }));
    });
    pictures
}

/// Of 300: B pictures that no other needs go first, half of the pictures, evenly.
#[test]
fn pictures_of_ffmpeg_are_decoded_in_mode_qdisc() {
    if let Some([read, blind]) = read_and_blind("qdisc", "700kbit", require::bpf_qdisc()) {
        assert!(read >= 110 && read >= 2 * blind, "{read}, {blind}");
    }
}

/// The same behind mode tc, which decides as packets come. There are no parameter sets but those in the stream.
#[test]
fn pictures_of_ffmpeg_are_decoded_in_mode_tc() {
    if let Some([read, blind]) = read_and_blind("tc", "700kbit", require::root()) {
        assert!(read >= 110 && read > blind, "{read}, {blind}");
    }
}
