//! Properties of `include/bb_tc_model.h`, compiled natively (`src/core_native.c`): the model of mode tc owes
//! no more than the leaves can hold, and forgets in the time that the link needs.

use bestby_bpf::{abi::*, tc_leaf_bytes};
use proptest::prelude::*;

/// `struct bb_tc_request`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Request {
    now: u64,
    rate: u64,
    latest: u64,
    packet_ns: u64,
    need_ns: u64,
    whole_ns: u64,
    promised_ns: u64,
    more_ns: u64,
    cap_ns: u64,
    plain_cap_ns: u64,
    wait_ns: u64,
    ifindex: u32,
    leaf: u8,
    priority: u8,
    never: u8,
    signalling: u8,
    tcp: u8,
    begins: u8,
    idle: u8,
    plain_share: u8,
}

/// `struct bb_tc_model`: the tests read it by functions only.
#[repr(C, align(8))]
struct Memory([u8; 4096]);

unsafe extern "C" {
    safe fn bbn_tc_model_size() -> u64;
    safe fn bbn_tc_request_size() -> u64;
    safe fn bbn_tc_queue(model: &Memory, leaf: u32) -> u64;
    safe fn bbn_tc_ask(model: &mut Memory, request: &mut Request) -> i32;
    safe fn bbn_tc_leaf(ns: u64, leaf: u8) -> u8;
    safe fn bbn_tx_time(bytes: u64, rate: u64) -> u64;
}

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const PLAIN: u8 = BB_TC_LEAF_PLAIN as u8;
const SHARE: u64 = 20;
const ADMIT: i32 = -1;
/// Long after boot.
const START: u64 = 1000 * SECOND;

struct Model {
    memory: Box<Memory>,
    rate: u64,
    now: u64,
}

impl Model {
    fn new(rate: u64) -> Self {
        assert!(bbn_tc_model_size() <= size_of::<Memory>() as u64);
        assert_eq!(bbn_tc_request_size(), size_of::<Request>() as u64);
        Self {
            memory: Box::new(Memory([0; 4096])),
            rate,
            now: START,
        }
    }

    fn cap(&self, leaf: u8) -> u64 {
        bbn_tx_time(tc_leaf_bytes(leaf.into(), self.rate, 0), self.rate)
    }

    fn queue(&self, leaf: u8) -> u64 {
        bbn_tc_queue(&self.memory, leaf.into())
    }

    fn total(&self) -> u64 {
        (0..=PLAIN).map(|leaf| self.queue(leaf)).sum()
    }

    /// A packet of `bytes` that is not part of an ADU; `slack` ns until it must leave, 0 = no deadline.
    fn packet(&self, leaf: u8, priority: u8, bytes: u64, slack: u64) -> Request {
        let packet_ns = bbn_tx_time(bytes, self.rate);
        Request {
            now: self.now,
            rate: self.rate,
            latest: if slack == 0 { 0 } else { self.now + slack },
            packet_ns,
            need_ns: packet_ns,
            whole_ns: packet_ns,
            cap_ns: self.cap(leaf),
            plain_cap_ns: self.cap(PLAIN),
            ifindex: 1,
            leaf,
            priority,
            begins: 1,
            plain_share: SHARE as u8,
            ..Default::default()
        }
    }

    /// The verdict, and the leaf.
    fn ask(&mut self, mut request: Request) -> (i32, u8) {
        let verdict = bbn_tc_ask(&mut self.memory, &mut request);
        (verdict, request.leaf)
    }

    fn audio(&mut self) -> i32 {
        self.ask(self.packet(3, 0, 214, 160 * MS)).0
    }

    fn plain(&mut self, bytes: u64) {
        assert_eq!(self.ask(self.packet(PLAIN, 3, bytes, 0)).0, ADMIT);
    }
}

/// What any sender might do: leaf, priority, bytes, slack, flags, what is promised, and the pause before.
type Any = (u8, u8, u64, u64, u8, u64, u64);

fn anything() -> impl Strategy<Value = Vec<Any>> {
    let one = (
        0..=PLAIN,
        0u8..8,
        1u64..65_536,
        0..10 * SECOND,
        any::<u8>(),
        0..SECOND,
        prop_oneof![Just(0), 0..MS, 0..SECOND],
    );
    prop::collection::vec(one, 1..300)
}

fn send(
    model: &mut Model,
    (leaf, priority, bytes, slack, flags, promised, pause): Any,
) -> (i32, u8) {
    model.now += pause;
    let mut r = model.packet(leaf, priority, bytes, slack);
    r.never = flags & 1;
    r.signalling = u8::from(leaf == 0 && flags & 2 != 0);
    r.tcp = u8::from(flags & 4 != 0) & r.never;
    r.begins = flags >> 3 & 1;
    r.idle = u8::from(flags >> 4 == 15);
    r.promised_ns = if r.begins == 0 { promised } else { 0 };
    r.more_ns = promised / 2;
    r.need_ns += r.more_ns;
    r.whole_ns = r.need_ns;
    model.ask(r)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_leaf_owes_more_than_it_can_hold(rate in 1000u64..10_000_000_000, packets in anything()) {
        let mut model = Model::new(rate);
        for any in packets {
            let (verdict, leaf) = send(&mut model, any);
            for leaf in 0..=PLAIN {
                prop_assert!(model.queue(leaf) <= model.cap(leaf), "leaf {leaf}");
            }
            // What may not be refused is not; it goes to its leaf or the plain one.
            if any.4 & 1 != 0 && any.4 >> 4 != 15 {
                prop_assert_eq!(verdict, ADMIT);
                prop_assert!(leaf == any.0 || leaf == PLAIN);
            }
        }
    }

    /// The link works without a pause while anything is queued.
    #[test]
    fn silence_is_forgotten_at_the_links_rate(rate in 1000u64..10_000_000_000, packets in anything(), silence in 0..100 * SECOND) {
        let mut model = Model::new(rate);
        for any in packets {
            send(&mut model, any);
        }
        let before = model.total();
        model.now += silence;
        // A packet of no size looks at the clock.
        model.plain(0);
        let after = model.total();
        prop_assert!(after <= before.saturating_sub(silence), "{before} {silence} {after}");
    }

    /// Whatever was sent, by whomever: it costs the important class no longer than the leaves before it need.
    #[test]
    fn the_important_are_admitted_again_when_the_flood_has_left(rate in 1_250_000u64..1_000_000_000, packets in anything()) {
        let mut model = Model::new(rate);
        for any in packets {
            send(&mut model, any);
        }
        let before: u64 = (0..=3).map(|leaf| model.cap(leaf)).sum();
        model.now += before * 100 / (100 - SHARE);
        prop_assert_eq!(model.audio(), ADMIT);
    }

    /// Traffic that is not media costs the important class one packet and its own share, at any moment.
    #[test]
    fn plain_traffic_never_refuses_the_important(rate in 1_250_000u64..1_000_000_000, packets in anything()) {
        let mut model = Model::new(rate);
        for (_, priority, bytes, slack, flags, promised, pause) in packets {
            send(&mut model, (PLAIN, priority, bytes, slack, flags & 1, promised, pause));
            if flags & 64 != 0 {
                prop_assert_eq!(model.audio(), ADMIT);
                model.now += 10 * MS;
            }
        }
    }

    #[test]
    fn a_leaf_is_kept_near_its_bounds(ns in 1..20 * SECOND) {
        let leaf = bbn_tc_leaf(ns, 0);
        prop_assert!((1..8).contains(&leaf));
        prop_assert_eq!(bbn_tc_leaf(ns, leaf), leaf);
        prop_assert_eq!(bbn_tc_leaf(ns + ns / 5, leaf), leaf, "a fifth later");
    }
}

/// 48 KiB of plain traffic hold a link of 2 Mbit/s for 197 ms. That is what it costs, and no more: with a
/// largest packet that was forgotten packet by packet, 40 kbit/s beside it cost audio 3.6 s.
#[test]
fn a_super_packet_costs_its_own_time_once() {
    let mut model = Model::new(250_000);
    model.plain(49_152);
    let sent = model.now;
    let mut refused_until = sent;
    let mut refused = 0;
    for n in 0..1000 {
        if n % 2 == 0 {
            model.plain(100);
        }
        if model.audio() != ADMIT {
            refused_until = model.now;
            refused += 1;
        }
        model.now += 20 * MS;
    }
    assert!(
        refused > 0,
        "nor is it too late to refuse what the link cannot carry"
    );
    assert!(
        refused_until - sent < 200 * MS,
        "{} ms",
        (refused_until - sent) / MS
    );
}

/// A flood of what may not be refused, less important than audio: it goes to the plain leaf.
#[test]
fn what_is_never_refused_takes_no_room_from_the_important() {
    let mut model = Model::new(250_000);
    let (mut media, mut plain) = (0, 0);
    for _ in 0..500 {
        assert_eq!(model.audio(), ADMIT);
        for _ in 0..10 {
            let mut r = model.packet(3, 7, 1200, 160 * MS);
            r.never = 1;
            match model.ask(r) {
                (ADMIT, 3) => media += 1,
                (ADMIT, PLAIN) => plain += 1,
                other => panic!("{other:?}"),
            }
        }
        model.now += 10 * MS;
    }
    assert!(media > 500 && plain > 1000, "{media} {plain}");
    // The same without a deadline: no test keeps it from its leaf, which holds ten seconds.
    let mut model = Model::new(250_000);
    let leaves: Vec<(i32, u8)> = (0..3000)
        .map(|_| {
            let mut r = model.packet(7, 7, 1200, 0);
            r.never = 1;
            model.ask(r)
        })
        .collect();
    assert_eq!(leaves[0], (ADMIT, 7));
    assert_eq!(leaves[2999], (ADMIT, PLAIN));
    assert_eq!(model.audio(), ADMIT);
}

/// What has no deadline and may be refused is dropped where its leaf is full, and counted as what it is.
#[test]
fn a_full_leaf_refuses_as_overflow() {
    let mut model = Model::new(250_000);
    let holds = model.cap(7) / bbn_tx_time(1000, 250_000);
    for n in 0..holds + 10 {
        let (verdict, _) = model.ask(model.packet(7, 7, 1000, 0));
        let expected = if n < holds {
            ADMIT
        } else {
            BB_DROP_OVERFLOW as i32
        };
        assert_eq!(verdict, expected, "{n} of {holds}");
    }
    assert_eq!(model.audio(), ADMIT);
}

/// TCP has a quarter of each 250 ms before plain traffic, however important its rule.
#[test]
fn tcp_has_a_quarter_before_plain_traffic() {
    let mut model = Model::new(1_250_000);
    let mut before_plain = 0;
    for _ in 0..1000 {
        let mut r = model.packet(3, 0, 1500, 160 * MS);
        (r.never, r.tcp) = (1, 1);
        let (verdict, leaf) = model.ask(r);
        assert_eq!(verdict, ADMIT);
        before_plain += if leaf == 3 { r.packet_ns } else { 0 };
        model.now += MS;
    }
    assert!(
        (180 * MS..=250 * MS).contains(&before_plain),
        "{before_plain} of a second"
    );
}

/// A retransmission that is stale goes while the link has nothing else to do.
#[test]
fn what_is_late_anyway_goes_only_over_an_idle_link() {
    let mut model = Model::new(250_000);
    let late = |model: &mut Model| {
        let mut r = model.packet(7, 4, 1000, 0);
        r.idle = 1;
        model.ask(r)
    };
    assert_eq!(late(&mut model), (ADMIT, 7));
    assert_eq!(
        late(&mut model).0,
        BB_DROP_STALE as i32,
        "4 ms behind itself"
    );
    model.now += 4 * MS;
    assert_eq!(late(&mut model), (ADMIT, 7));
    model.now += 4 * MS;
    model.plain(100);
    assert_eq!(late(&mut model).0, BB_DROP_STALE as i32);
}
