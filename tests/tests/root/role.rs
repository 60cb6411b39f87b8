//! What the payload says of a frame decides how important it is, where nobody else does (`BPF_PROG_TEST_RUN` on the
//! loopback interface).

use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{Lab, Outcome, Rule},
    classify::PORT,
    clock::SECOND,
    frame::{rtp_with, udp4},
};

const LIFETIME: u64 = 100 * SECOND;
const KEY: u8 = 0x65;
const REFERENCE: u8 = 0x41;
const DISPOSABLE: u8 = 0x01;
/// Frames until a codec is known.
const SURE: u32 = 32;

/// A sender of H.264, a frame of two packets at a time.
struct Sender<'a> {
    lab: &'a Lab,
    ssrc: u32,
    seq: u16,
    time: u32,
    /// Of each byte of the payload.
    key: u8,
    /// RTP's header has two CSRCs and an extension.
    extended: bool,
}

impl<'a> Sender<'a> {
    fn new(lab: &'a Lab) -> Self {
        Self {
            lab,
            ssrc: 7,
            seq: 0,
            time: 0,
            key: 0,
            extended: false,
        }
    }

    fn packet(&mut self, payload: &[u8], marker: bool) -> Outcome {
        self.seq = self.seq.wrapping_add(1);
        let mut packet = rtp_with(96, self.seq, self.ssrc, self.time);
        packet.truncate(12);
        packet[1] |= u8::from(marker) << 7;
        if self.extended {
            packet[0] |= 0x12;
            packet.extend([1, 2, 3, 4, 5, 6, 7, 8, 0xBE, 0xDE, 0, 1, 0x10, 0xFF, 0, 0]);
        }
        packet.extend(payload.iter().map(|byte| byte ^ self.key));
        packet.resize(packet.len().max(200), 0x5a);
        self.lab.run(&udp4(PORT, &packet))
    }

    /// The first fragment of a unit with this header, and the last one: the second packet.
    fn frame(&mut self, header: u8) -> Outcome {
        self.time += 3000;
        let indicator = header & 0xE0 | 28;
        let first = self.packet(&[indicator, 0x80 | header & 31, 1, 2], false);
        let last = self.packet(&[indicator, 0x40 | header & 31, 3, 4], true);
        assert_eq!(
            (first.cb.adu, first.priority(), first.has(BB_CB_LARGE)),
            (last.cb.adu, last.priority(), last.has(BB_CB_LARGE))
        );
        last
    }

    /// Groups of ten frames, with a disposable one in two, until the codec and their length are known.
    fn groups(&mut self) {
        for n in 0..SURE + 28 {
            self.frame(match n % 10 {
                0 => KEY,
                n if n % 2 == 1 => DISPOSABLE,
                _ => REFERENCE,
            });
        }
    }
}

fn lab(rule: Rule) -> Lab {
    let lab = Lab::new();
    lab.rules(&[rule.dport(PORT).lifetime(LIFETIME)]);
    lab
}

fn says(out: &Outcome) -> (u32, bool) {
    (u32::from(out.priority()), out.has(BB_CB_LARGE))
}

#[test]
fn role_of_a_frame_is_its_priority_where_nobody_says_one() {
    for extended in [false, true] {
        let lab = lab(Rule::new());
        let mut sender = Sender::new(&lab);
        sender.extended = extended;
        let first = sender.frame(KEY);
        assert_eq!(says(&first), (BB_PRIORITY_DEFAULT, false));
        sender.groups();
        assert_eq!(says(&sender.frame(KEY)), (BB_PRIORITY_DEFAULT, true));
        // By thirds of the group.
        let references = [(); 9].map(|()| says(&sender.frame(REFERENCE)).0);
        assert_eq!(references, [4, 4, 4, 5, 5, 5, 6, 6, 6]);
        assert_eq!(says(&sender.frame(DISPOSABLE)), (7, false));
    }
}

#[test]
fn role_says_nothing_against_the_operator_but_which_frame_is_spared() {
    let lab = lab(Rule::new().priority(2));
    let mut sender = Sender::new(&lab);
    sender.groups();
    assert_eq!(says(&sender.frame(KEY)), (2, true));
    assert_eq!(says(&sender.frame(REFERENCE)), (2, false));
    assert_eq!(says(&sender.frame(DISPOSABLE)), (2, false));
}

#[test]
fn payload_that_is_no_codec_s_says_nothing() {
    let lab = lab(Rule::new());
    let mut sender = Sender::new(&lab);
    // As if encrypted: the first bit of each payload is one that no codec has.
    sender.key = 0x82;
    sender.groups();
    sender.groups();
    for header in [KEY, REFERENCE, DISPOSABLE] {
        assert_eq!(says(&sender.frame(header)).0, BB_PRIORITY_DEFAULT);
    }
    // Nor does what no rule covers.
    let lab = Lab::new();
    let mut sender = Sender::new(&lab);
    sender.groups();
    assert_eq!(
        sender.frame(DISPOSABLE).priority(),
        BB_PRIORITY_DEFAULT as u8
    );
}

#[test]
fn stream_that_takes_the_place_of_another_is_read_anew() {
    let lab = lab(Rule::new());
    let mut sender = Sender::new(&lab);
    sender.groups();
    assert_eq!(says(&sender.frame(DISPOSABLE)).0, 7);
    sender.ssrc = 8;
    assert_eq!(says(&sender.frame(DISPOSABLE)).0, BB_PRIORITY_DEFAULT);
}

/// The role in the control block, which the queue goes by: `bb_cb_role_of`.
fn chained(out: &Outcome) -> u8 {
    out.cb.class_ >> 3 & 1 | out.cb.class_ >> 5 & 6
}

#[test]
fn role_goes_with_the_packet_until_the_stream_is_repaired() {
    let lab = lab(Rule::new());
    let mut sender = Sender::new(&lab);
    assert_eq!(chained(&sender.frame(KEY)), 0);
    sender.groups();
    let roles = [KEY, REFERENCE, DISPOSABLE].map(|header| chained(&sender.frame(header)));
    assert_eq!(roles, [1, 2, 5]);
    // The last packet again: whoever has repairs may get the lost frame yet.
    std::thread::sleep(std::time::Duration::from_millis(20));
    sender.seq -= 1;
    let again = sender.packet(&[DISPOSABLE & 0xE0 | 28, 0x40 | 1, 3, 4], true);
    assert!(again.has(BB_CB_REPAIR), "{again:?}");
    assert_eq!(chained(&sender.frame(REFERENCE)), 0);
}
