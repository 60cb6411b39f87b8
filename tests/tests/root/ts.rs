//! MPEG-TS in UDP and RTP: pictures are ADUs, and what they are for decides how important they are, where nobody else
//! does (`BPF_PROG_TEST_RUN` on the loopback interface).

use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{LO, Lab, Outcome, Rule, iface},
    classify::{PORT, relative},
    clock::SECOND,
    frame::{rtp_with, udp4},
};

#[path = "../../../bpf/tests/mpeg/mod.rs"]
mod mpeg;

use mpeg::{AUDIO, Mux, SURE, VIDEO};

const LIFETIME: u64 = 100 * SECOND;
const KEY: u8 = 0x65;
const REFERENCE: u8 = 0x41;
const DISPOSABLE: u8 = 0x01;
const MAJOR: u16 = 0x7f;

/// A sender of MPEG-TS with H.264: a picture of two datagrams at a time.
struct Sender<'a> {
    lab: &'a Lab,
    mux: Mux,
    pts: u32,
    /// The next sequence number, if it sends RTP.
    rtp: Option<u16>,
    /// Of each byte.
    key: u8,
    mark: u32,
}

impl<'a> Sender<'a> {
    fn new(lab: &'a Lab) -> Self {
        Self {
            lab,
            mux: Mux::default(),
            pts: 0,
            rtp: None,
            key: 0,
            mark: 0,
        }
    }

    fn send(&mut self, packets: &[Vec<u8>]) -> Outcome {
        let mut bytes = packets.concat();
        bytes.iter_mut().for_each(|byte| *byte ^= self.key);
        if let Some(seq) = &mut self.rtp {
            // Each datagram has a time of its own.
            let mut packet = rtp_with(33, *seq, 7, u32::from(*seq) * 500);
            packet.truncate(12);
            packet.extend(bytes);
            bytes = packet;
            *seq += 1;
        }
        self.lab.run_marked(&udp4(PORT, &bytes), self.mark)
    }

    fn packets(&mut self, header: u8, count: usize) -> Vec<Vec<u8>> {
        self.pts += 3600;
        let unit = [
            &[0, 0, 0, 1, 9, 0xF0, 0, 0, 1, header][..],
            &[0x88, 1, 2, 3],
        ]
        .concat();
        self.mux.picture(self.pts, header == KEY, &unit, count)
    }

    /// Both datagrams are of one ADU, which is not that of the picture before: the second one.
    fn picture(&mut self, header: u8) -> Outcome {
        let packets = self.packets(header, 10);
        let [first, second] = [&packets[..7], &packets[7..]].map(|packets| self.send(packets));
        assert_eq!(
            (first.cb.adu, first.cb.class_, first.cb.rtp),
            (second.cb.adu, second.cb.class_, second.cb.rtp)
        );
        second
    }

    fn map(&mut self) -> Outcome {
        let map = self.mux.map(&[(0x1B, VIDEO), (15, AUDIO)]);
        self.send(&[map])
    }

    fn audio(&mut self) -> Outcome {
        let audio = self.mux.audio(7);
        self.send(&audio)
    }

    /// Groups of ten pictures, a disposable one in two, until the codec and their length are known.
    fn groups(&mut self) {
        for n in 0..SURE + 28 {
            if n % 3 == 1 {
                self.map();
            }
            let header = match n % 10 {
                0 => KEY,
                n if n % 2 == 1 => DISPOSABLE,
                _ => REFERENCE,
            };
            let packets = self.packets(header, 10);
            self.send(&packets[..7]);
            self.send(&packets[7..]);
        }
    }
}

fn lab(rule: Rule) -> Lab {
    let lab = Lab::new();
    lab.rules(&[rule.dport(PORT).lifetime(LIFETIME)]);
    lab
}

/// The role in the control block (`bb_cb_role_of`).
fn role(out: &Outcome) -> u8 {
    out.cb.class_ >> 3 & 1 | out.cb.class_ >> 5 & 6
}

/// Priority, whether it is spared, the role.
fn says(out: &Outcome) -> (u8, bool, u8) {
    (out.priority(), out.has(BB_CB_LARGE), role(out))
}

const NOTHING: (u8, bool, u8) = (BB_PRIORITY_DEFAULT as u8, false, 0);

#[test]
fn ts_picture_is_an_adu_and_says_what_it_is_worth() {
    for rtp in [None, Some(1)] {
        let lab = lab(Rule::new());
        let mut sender = Sender::new(&lab);
        sender.rtp = rtp;
        let packets = sender.packets(KEY, 7);
        let first = sender.send(&packets);
        assert_eq!(says(&first), NOTHING);
        sender.groups();
        let key = sender.picture(KEY);
        assert_eq!(says(&key), (3, true, 1));
        assert!(key.has(BB_CB_ADU) && key.cb.rtp == BB_STREAM_TS as u8);
        // By thirds of the group.
        let links = [(); 9].map(|()| sender.picture(REFERENCE));
        assert_eq!(
            [0, 2, 3, 5, 6, 8].map(|n: usize| says(&links[n])),
            [4, 4, 5, 5, 6, 6].map(|priority| (priority, false, 2))
        );
        let numbers = links.map(|out| out.cb.adu);
        assert!(
            numbers.windows(2).all(|two| two[1] == two[0] + 1),
            "{numbers:?}"
        );
        let leaf = sender.picture(DISPOSABLE);
        assert_eq!((says(&leaf), leaf.cb.adu), ((7, false, 5), numbers[8] + 1));
    }
}

#[test]
fn ts_tables_and_audio_are_of_no_picture_and_null_packets_are_worth_least() {
    for rtp in [None, Some(1)] {
        let lab = lab(Rule::new());
        let mut sender = Sender::new(&lab);
        sender.rtp = rtp;
        sender.groups();
        let before = sender.picture(DISPOSABLE);
        for alone in [sender.map(), sender.audio()] {
            assert_eq!((says(&alone), alone.cb.adu), ((3, true, 0), 0));
            assert!(!alone.has(BB_CB_ADU) && alone.cb.rtp == BB_STREAM_TS as u8);
            assert!(alone.deadline() >= before.deadline());
        }
        let null = sender.send(&[Mux::null(), Mux::null()]);
        assert_eq!((says(&null), null.cb.adu), ((7, false, 0), 0));
        // A picture that is interrupted goes on as another ADU: nothing leaves before what came before.
        let packets = sender.packets(REFERENCE, 8);
        let begin = sender.send(&packets[..3]);
        let audio = sender.mux.audio(1);
        let mixed = sender.send(&[&packets[3..5], &audio[..]].concat());
        let end = sender.send(&packets[5..]);
        assert_eq!(
            [&begin, &end].map(|out| out.cb.adu),
            [0, 1].map(|n| begin.cb.adu + n)
        );
        assert_eq!(
            (mixed.cb.adu, says(&begin), says(&end)),
            (0, says(&end), says(&begin))
        );
        let times = [&begin, &mixed, &end].map(Outcome::deadline);
        assert!(times.is_sorted(), "{times:?}");
    }
}

#[test]
fn ts_says_nothing_against_the_operator_but_which_picture_is_spared() {
    let lab = lab(Rule::new().priority(2));
    let mut sender = Sender::new(&lab);
    sender.groups();
    let pictures = [KEY, REFERENCE, DISPOSABLE].map(|header| says(&sender.picture(header)));
    assert_eq!(pictures, [(2, true, 1), (2, false, 2), (2, false, 5)]);
    assert_eq!(says(&sender.map()), (2, true, 0));
    let null = sender.send(&[Mux::null()]);
    assert_eq!(says(&null), (2, false, 0));
}

#[test]
fn ts_has_the_priorities_of_a_rule_in_both_modes() {
    for mode in [BB_MODE_QDISC, BB_MODE_TC] {
        let lab = lab(Rule::new().roles([1, 2, 3, 5, 6]));
        lab.iface(0, &iface(LO, mode));
        let mut sender = Sender::new(&lab);
        sender.groups();
        let pictures = [KEY, REFERENCE, DISPOSABLE].map(|header| sender.picture(header).priority());
        assert_eq!((pictures, sender.audio().priority()), ([1, 2, 6], 1));
    }
}

/// As if encrypted; two programmes; a rule that forbids it; no rule; ADUs that the application names itself.
#[test]
fn ts_is_not_read_where_it_says_nothing_or_nobody_asked() {
    let pictures = |lab: &Lab, key: u8, mark: u32, two: bool| {
        let mut sender = Sender::new(lab);
        (sender.key, sender.mark) = (key, mark);
        sender.groups();
        if two {
            let other = sender
                .mux
                .pes(0x200, 0xE1, 0, false, &[0, 0, 1, 9, 0xF0], 2);
            sender.send(&other);
        }
        [KEY, REFERENCE, DISPOSABLE].map(|header| {
            let out = sender.picture(header);
            assert_eq!(role(&out), 0);
            out
        })
    };
    let ruled = || lab(Rule::new());
    for (lab, key, two) in [
        (ruled(), 0x82, false),
        (ruled(), 0, true),
        (lab(Rule::new().blind()), 0, false),
        (Lab::new(), 0, false),
    ] {
        for out in pictures(&lab, key, 0, two) {
            assert_eq!((says(&out), out.cb.adu, out.cb.rtp), (NOTHING, 0, 0));
        }
    }
    let mark = relative(LIFETIME) | 2 << BB_MARK_PRIORITY_SHIFT | 1 << BB_MARK_ADU_SHIFT;
    for out in pictures(&ruled(), 0, mark, false) {
        assert_eq!((out.priority(), out.cb.rtp), (2, 0));
        assert!(out.has(BB_CB_ADU));
    }
}

/// A payload that is encrypted looks like MPEG-TS once in 256 times by its first byte, and never by seven.
#[test]
fn ts_is_not_made_of_what_has_its_length() {
    let lab = lab(Rule::new());
    let mut seed = 3u32;
    for _ in 0..3000 {
        let bytes: Vec<u8> = (0..1316)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 24) as u8
            })
            .collect();
        let mut payload = bytes;
        payload[0] = 0x47;
        let out = lab.run(&udp4(PORT, &payload));
        assert_eq!((says(&out), out.cb.adu), (NOTHING, 0));
    }
    let streams = (0..BB_MAX_STREAMS)
        .filter_map(|index| lab.get::<_, bb_stream>("bb_streams", &index))
        .filter(|stream| stream.key.rtp == BB_STREAM_TS)
        .count();
    assert_eq!(streams, 0);
}

#[test]
fn ts_repair_of_a_datagram_is_no_picture() {
    let lab = lab(Rule::new());
    let mut sender = Sender::new(&lab);
    sender.rtp = Some(1);
    sender.groups();
    let packets = sender.packets(REFERENCE, 14);
    let first = sender.send(&packets[..7]);
    std::thread::sleep(std::time::Duration::from_millis(20));
    sender.rtp = sender.rtp.map(|seq| seq - 1);
    let again = sender.send(&packets[..7]);
    assert!(again.has(BB_CB_REPAIR), "{again:?}");
    let rest = sender.send(&packets[7..]);
    assert_eq!(
        (rest.priority(), rest.cb.adu),
        (first.priority(), first.cb.adu)
    );
    // Whoever repairs may get what was given up yet: it takes nothing along.
    assert_eq!([&first, &rest].map(role), [2, 0]);
}

/// In mode tc the tree has leaves by priority, and nothing puts MPEG-TS in order again.
#[test]
fn ts_is_in_one_leaf_of_mode_tc() {
    let lab = lab(Rule::new());
    let mut i = iface(LO, BB_MODE_TC);
    i.rate = 1_000_000_000;
    i.htb_major = MAJOR;
    lab.iface(0, &i);
    let mut sender = Sender::new(&lab);
    sender.groups();
    let outs = [
        sender.picture(KEY),
        sender.picture(REFERENCE),
        sender.picture(DISPOSABLE),
        sender.map(),
        sender.send(&[Mux::null()]),
    ];
    assert_eq!(outs.each_ref().map(Outcome::priority), [3, 3, 7, 3, 7]);
    let leaves = outs.map(|out| out.skb.priority);
    assert!(leaves.iter().all(|leaf| *leaf == leaves[0]), "{leaves:x?}");
}
