//! Properties of `include/bb_tc_model.h`, compiled natively (`src/core_native.c`): the model of mode tc owes
//! no more than the leaves can hold, and forgets in the time that the link needs.

mod tc;

use bestby_bpf::abi::*;
use proptest::prelude::*;
use tc::*;

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
    fn leaf_never_holds_more_than_its_cap(rate in 1000u64..10_000_000_000, packets in anything()) {
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
    fn queue_drains_at_the_link_rate_while_nothing_comes(rate in 1000u64..10_000_000_000, packets in anything(), silence in 0..100 * SECOND) {
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
    fn audio_is_admitted_again_once_a_flood_has_left(rate in 1_250_000u64..1_000_000_000, packets in anything()) {
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
    fn plain_traffic_never_makes_audio_refused(rate in 1_250_000u64..1_000_000_000, packets in anything()) {
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
    fn leaf_stays_while_the_slack_changes_by_a_fifth(ns in 100..20 * SECOND, priority in 0u32..8) {
        let leaf = bbn_tc_leaf(ns, priority, 0);
        prop_assert!((1..8).contains(&leaf));
        prop_assert_eq!(bbn_tc_leaf(ns, priority, leaf), leaf);
        prop_assert_eq!(bbn_tc_leaf(ns + ns / 5, priority, leaf), leaf, "a fifth later");
    }

    /// Nobody waits behind what matters less and is of use as long, or longer.
    #[test]
    fn important_goes_into_no_later_leaf(ns in 1..u64::MAX, more in 0..20 * SECOND, priority in 0u32..8, below in 0u32..8) {
        let (least, most) = (priority.min(below), priority.max(below));
        let longer = ns.saturating_add(more);
        prop_assert!(bbn_tc_leaf(ns, least, 0) <= bbn_tc_leaf(longer, most, 0));
        prop_assert_eq!(bbn_tc_leaf(0, least, 0), if least < 3 { 1 } else { 7 }, "no lifetime");
    }
}

/// 48 KiB of plain traffic hold a link of 2 Mbit/s for 197 ms. That is what it costs, and no more: with a
/// largest packet that was forgotten packet by packet, 40 kbit/s beside it cost audio 3.6 s.
#[test]
fn plain_super_packet_delays_audio_by_its_own_time_once() {
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
        "audio that the link cannot carry in time is refused"
    );
    assert!(
        refused_until - sent < 200 * MS,
        "{} ms",
        (refused_until - sent) / MS
    );
}

/// A flood of what may not be refused, less important than audio: it goes to the plain leaf.
#[test]
fn unrefusable_flood_goes_to_the_plain_leaf() {
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
fn full_leaf_refuses_as_overflow() {
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
fn tcp_has_a_quarter_of_the_link_before_plain_traffic() {
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
fn stale_retransmission_goes_over_an_idle_link_only() {
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
        "the link needs 4 ms for the first one"
    );
    model.now += 4 * MS;
    assert_eq!(late(&mut model), (ADMIT, 7));
    model.now += 4 * MS;
    model.plain(100);
    assert_eq!(late(&mut model).0, BB_DROP_STALE as i32);
}
