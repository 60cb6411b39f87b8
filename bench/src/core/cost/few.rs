//! The few costs that a test holds against those of before (`tests/tests/vm_icount/cost.rs`): they take minutes, and
//! all the others a quarter of an hour.

use anyhow::{Context as _, Result, ensure};

use super::{BYTES, Bench, RULES, Says, rules};
use crate::{say, sys};

/// Packets of a repetition.
const PACKETS: u64 = 6_000;
/// A conference's audio.
const RECEIVERS: u64 = 60;
const EACH_PER_S: u64 = 50;

/// Prints each as `cost: NAME: INSTRUCTIONS`, above no qdisc.
pub(super) fn run(bench: &Bench) -> Result<()> {
    let spaced = sys::SECOND / RECEIVERS / EACH_PER_S;
    let traffic = [
        ("one flow, one packet after the other".to_owned(), 1, 0),
        (
            format!("{RECEIVERS} receivers of {EACH_PER_S} packets/s"),
            RECEIVERS,
            spaced,
        ),
    ];
    bench.bare();
    let mut bare = Vec::new();
    for (_, flows, delay) in &traffic {
        bare.push(bench.pass([*flows, BYTES, *delay], PACKETS)?.0);
    }
    for mode in ["qdisc", "tc"] {
        let attach = format!("--mode {mode} --rate 10gbit");
        let agent = bench.agent(&rules(RULES, &[Says::ms(200)]), &attach)?;
        for ((name, flows, delay), bare) in traffic.iter().zip(&bare) {
            let before = bench.rule(&agent)?;
            let paused = agent.pause()?;
            let (total, spread) = bench.pass([*flows, BYTES, *delay], PACKETS).context(mode)?;
            drop(paused);
            let after = bench.rule(&agent)?;
            let [seen, dropped] = [0, 1].map(|n| after[n] - before[n]);
            ensure!(
                seen >= PACKETS && dropped == 0,
                "mode {mode}, {name}: the rule counted {seen} packets and dropped {dropped}"
            );
            let added = total - bare;
            note!("  mode {mode}, {name}: {total:.0} in all, spread {spread:.1}");
            say::text(&format!("cost: mode {mode}, {name}: {added:.0}\n"));
        }
        bench.detach(&agent)?;
    }
    Ok(())
}
