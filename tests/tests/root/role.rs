//! What the payload says of a frame decides how important it is, where nobody else does (`BPF_PROG_TEST_RUN` on the
//! loopback interface).

use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{LO, Lab, Outcome, Rule, iface},
    classify::{PORT, relative},
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
    /// That extension is this element, under an id that nobody told: two bytes of its form and what follows.
    element: Vec<u8>,
    /// 0: none.
    mark: u32,
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
            element: vec![0x10, 0xFF, 0, 0],
            mark: 0,
        }
    }

    fn packet(&mut self, payload: &[u8], marker: bool) -> Outcome {
        self.seq = self.seq.wrapping_add(1);
        let mut packet = rtp_with(96, self.seq, self.ssrc, self.time);
        packet.truncate(12);
        packet[1] |= u8::from(marker) << 7;
        if self.extended {
            packet[0] |= 0x12;
            packet.extend([1, 2, 3, 4, 5, 6, 7, 8, 0xBE, 0xDE, 0, 0]);
            packet[23] = (self.element.len() / 4) as u8;
            packet.extend(&self.element);
        }
        packet.extend(payload.iter().map(|byte| byte ^ self.key));
        packet.resize(packet.len().max(200), 0x5a);
        let mut mark = self.mark;
        if mark >> BB_MARK_ADU_SHIFT & 7 != 0 {
            // Whoever numbers ADUs counts them.
            mark &= !(7 << BB_MARK_ADU_SHIFT);
            mark |= (self.time / 3000 % 7 + 1) << BB_MARK_ADU_SHIFT;
        }
        self.lab.run_marked(&udp4(PORT, &packet), mark)
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

    /// The same, with Dependency Descriptors beside an encrypted payload: of frame `number`, with this template.
    fn described(&mut self, number: u16, template: u8, key: bool) -> Outcome {
        // The first template's id, targets, the levels of three templates: 0, 0 and 1.
        const STRUCTURE: [u8; 6] = [0x80, 0, 0b0001_1100, 0, 0, 0];
        self.time += 3000;
        self.extended = true;
        let mut outcome = None;
        for (ends, structure) in [(0x80, key), (0x40, false)] {
            let mut descriptor = vec![ends | template];
            descriptor.extend(number.to_be_bytes());
            if structure {
                descriptor.extend(STRUCTURE);
            }
            self.element = vec![0xC0 | (descriptor.len() as u8 - 1)];
            self.element.extend(descriptor);
            self.element
                .resize(self.element.len().next_multiple_of(4), 0);
            outcome = Some(self.packet(&number.to_le_bytes(), ends == 0x40));
        }
        outcome.unwrap()
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

/// The roles in the control block of a key frame, a link and a leaf, and of a link after a repair of the stream.
fn chained_and_repaired(lab: &Lab) -> ([u8; 3], u8) {
    let mut sender = Sender::new(lab);
    assert_eq!(chained(&sender.frame(KEY)), 0);
    sender.groups();
    let roles = [KEY, REFERENCE, DISPOSABLE].map(|header| chained(&sender.frame(header)));
    // The last packet again: whoever has repairs may get the lost frame yet.
    std::thread::sleep(std::time::Duration::from_millis(20));
    sender.seq -= 1;
    let again = sender.packet(&[DISPOSABLE & 0xE0 | 28, 0x40 | 1, 3, 4], true);
    assert!(again.has(BB_CB_REPAIR), "{again:?}");
    (roles, chained(&sender.frame(REFERENCE)))
}

#[test]
fn role_goes_with_the_packet_until_the_stream_is_repaired() {
    let lab = lab(Rule::new());
    assert_eq!(chained_and_repaired(&lab), ([1, 2, 5], 0));
}

#[test]
fn rule_says_whether_chains_break() {
    let skip = lab(Rule::new().chain(BB_RULE_CHAIN_SKIP));
    assert_eq!(chained_and_repaired(&skip), ([1, 2, 5], 2));
    let off = lab(Rule::new().chain(BB_RULE_CHAIN_OFF));
    assert_eq!(chained_and_repaired(&off), ([0; 3], 0));
    // What frames are worth is another matter.
    assert_eq!(says(&Sender::new(&off).frame(DISPOSABLE)).0, 7);
}

#[test]
fn rule_may_forbid_to_look_at_packets() {
    for mode in [BB_MODE_QDISC, BB_MODE_TC] {
        for (rule, priority) in [(Rule::new(), 7), (Rule::new().blind(), BB_PRIORITY_DEFAULT)] {
            let lab = lab(rule);
            lab.iface(0, &iface(LO, mode));
            let mut sender = Sender::new(&lab);
            sender.groups();
            let out = sender.frame(DISPOSABLE);
            assert_eq!(says(&out).0, priority);
            assert_eq!(chained(&out), if priority == 7 { 5 } else { 0 });
            let codecs: Vec<u8> = (0..BB_MAX_STREAMS)
                .filter_map(|index| lab.get::<_, bb_video>("bb_videos", &index))
                .map(|video| video.codec)
                .filter(|codec| *codec != 0)
                .collect();
            assert_eq!(codecs.is_empty(), priority != 7, "{codecs:?}");
        }
    }
}

#[test]
fn priorities_of_a_rule_are_those_of_its_frames_in_both_modes() {
    for mode in [BB_MODE_QDISC, BB_MODE_TC] {
        let lab = lab(Rule::new().roles([1, 2, 3, 5, 6]));
        lab.iface(0, &iface(LO, mode));
        // They go before the table of DSCP, as a rule's word does.
        lab.configure(|config| config.dscp_table[0] = 4);
        let mut sender = Sender::new(&lab);
        // Until the codec is known, the table decides.
        assert_eq!(says(&sender.frame(KEY)).0, 4);
        sender.groups();
        assert_eq!(says(&sender.frame(KEY)), (1, true));
        assert_eq!([(); 9].map(|()| says(&sender.frame(REFERENCE)).0), [2; 9]);
        assert_eq!(says(&sender.frame(DISPOSABLE)), (6, false));
    }
}

#[test]
fn table_of_dscp_goes_before_the_built_in_priorities_of_roles() {
    let lab = lab(Rule::new());
    lab.configure(|config| config.dscp_table[0] = 4);
    let mut sender = Sender::new(&lab);
    sender.groups();
    for header in [KEY, REFERENCE, DISPOSABLE] {
        assert_eq!(says(&sender.frame(header)).0, 4);
    }
}

#[test]
fn descriptor_in_clear_tells_the_role_of_an_encrypted_frame() {
    let lab = lab(Rule::new());
    let mut sender = Sender::new(&lab);
    sender.key = 0x82;
    let mut number = 0;
    let mut frame = |sender: &mut Sender<'_>, template, key| {
        number += 1;
        sender.described(number, template, key)
    };
    for n in 0..SURE + 28 {
        frame(&mut sender, [1, 2][n as usize % 2], n % 10 == 0);
    }
    assert_eq!(
        says(&frame(&mut sender, 0, true)),
        (BB_PRIORITY_DEFAULT, true)
    );
    let link = frame(&mut sender, 1, false);
    assert_eq!((says(&link), chained(&link)), ((4, false), 2));
    assert_eq!(says(&frame(&mut sender, 2, false)), (7, false));
    // Of what Cryptex hides nothing is read.
    let mut sender = Sender::new(&lab);
    sender.ssrc = 9;
    sender.key = 0x82;
    for n in 0..2 * SURE {
        sender.time += 3000;
        let mut packet = rtp_with(96, n as u16, 9, sender.time);
        packet.truncate(12);
        packet[0] |= 0x10;
        packet[1] |= 0x80;
        packet.extend([0xC0, 0xDE, 0, 1, 0xC2, 0xC0, 0, n as u8]);
        packet.resize(200, 0x5a);
        let out = lab.run(&udp4(PORT, &packet));
        assert_eq!(says(&out).0, BB_PRIORITY_DEFAULT);
    }
}

#[test]
fn parameter_sets_before_a_reference_end_no_chain() {
    let lab = lab(Rule::new());
    let mut sender = Sender::new(&lab);
    sender.groups();
    sender.time += 3000;
    let sets = sender.packet(&[24, 0, 4, 0x67, 1, 2, 3, 0, 2, 0x68, 1], false);
    // A decoder needs them to begin: they are spared as the key frame is.
    assert_eq!((says(&sets), chained(&sets)), ((3, true), 0));
    let picture = sender.packet(&[REFERENCE, 1, 2, 3], true);
    assert_eq!(chained(&picture), 2);
}

#[test]
fn what_comes_before_the_picture_goes_for_itself() {
    let lab = lab(Rule::new());
    let mut sender = Sender::new(&lab);
    sender.groups();
    for (header, role) in [(KEY, 1), (REFERENCE, 2), (DISPOSABLE, 5)] {
        sender.time += 3000;
        let before = [[0x09, 0xF0, 0], [0x06, 5, 4]].map(|unit| sender.packet(&unit, false));
        let picture = sender.packet(&[header, 1, 2, 3], false);
        let beside = sender.packet(&[0x06, 5, 4], true);
        for out in before {
            assert_eq!(
                (out.cb.adu, out.has(BB_CB_ADU), chained(&out)),
                (0, false, 0)
            );
        }
        assert!(picture.has(BB_CB_ADU));
        assert_eq!(picture.cb.adu, beside.cb.adu);
        assert_eq!([&picture, &beside].map(chained), [role; 2]);
        assert_eq!(picture.priority(), beside.priority());
    }
}

#[test]
fn packets_that_are_marked_tell_their_role_without_a_rule() {
    let lab = Lab::new();
    let mut sender = Sender::new(&lab);
    sender.groups();
    assert_eq!(chained(&sender.frame(REFERENCE)), 0);
    // 100 s of use, priority 2; then with a number of the ADU, too, which names the stream.
    for (ssrc, adu) in [(8, 0), (9, 1 << BB_MARK_ADU_SHIFT)] {
        sender.ssrc = ssrc;
        sender.mark = relative(LIFETIME) | 2 << BB_MARK_PRIORITY_SHIFT | adu;
        sender.groups();
        let (key, link) = (sender.frame(KEY), sender.frame(REFERENCE));
        assert_eq!(
            [key.priority(), link.priority()],
            [2; 2],
            "what is said stays said"
        );
        assert_eq!([chained(&key), chained(&link)], [1, 2], "{ssrc}");
    }
    // Another stream with such marks is not taken for the next frames of that one.
    sender.ssrc = 10;
    for header in [KEY, REFERENCE] {
        assert_eq!(chained(&sender.frame(header)), 0);
    }
    sender.ssrc = 9;
    assert_eq!(chained(&sender.frame(REFERENCE)), 2);
}
