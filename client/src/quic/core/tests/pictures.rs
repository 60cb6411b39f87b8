//! The law of importance over QUIC, with the traffic of the backlog's own test.

use super::*;
use crate::backlog::{law, transmission};

#[test]
fn key_frames_arrive_at_twice_the_rate_whatever_matters_less() {
    let trace = law::pictures(23, 2.0, &law::LONG, 300);
    for margin in [0, 75 * MS] {
        let view = View {
            margin,
            acknowledged: true,
            ..law::EXACT
        };
        let options = Options::new().limits(1024, 8 << 20).adu_limit(100_000);
        let (mut core, mut wire) = (Core::new(options, 0), Wire::new());
        let mut rest = trace.iter().peekable();
        while rest.peek().is_some() || !core.is_idle() {
            while let Some(offered) = rest.next_if(|offered| offered.at <= wire.now) {
                let said = said(offered.lifetime / MS, offered.priority);
                core.send(vec![0; offered.bytes].into(), &said, offered.at)
                    .unwrap();
            }
            core.expire(wire.now, &view);
            let wrote = core.write(wire.now, &view, SEGMENT, SEGMENT, &mut wire);
            acknowledge_all(&mut core, wire.now);
            let taken = transmission(wrote.bytes as usize, law::RATE);
            wire.now += taken.max(MS / 10);
        }
        let mut went = vec![law::Went::default(); trace.len()];
        for sent in wire
            .log
            .borrow()
            .iter()
            .filter(|sent| sent.finished && !sent.reset)
        {
            let (header, _) = header(sent);
            if !header.notice {
                went[header.id as usize].ended =
                    Some(sent.last + transmission(SEGMENT as usize, law::RATE));
            }
        }
        let shares = law::shares(&trace, &went);
        println!("margin {margin}: {shares:?}");
        assert!(
            shares.audio >= 995 && shares.keys >= 990 && shares.base >= 990,
            "{shares:?}"
        );
        assert!(shares.decodable >= 380, "{shares:?}");
    }
}
