//! An agent in mode qdisc that does not live long.

use std::time::Duration;

use bestby_tests::netns::linked_lab;
use bestby_tests::{long, require};

use crate::survive_lab::{Kills, kill};

#[test]
fn agent_killed_at_random_points_loses_nothing_it_was_told() {
    linked_lab(require::bpf_qdisc(), |lab, peer| {
        let kills = Kills {
            count: long::run(4, 200),
            seed: long::seed(),
            mode: "qdisc",
            // Two or three upgrades: an emulated kernel verifies for seconds.
            within: Duration::from_secs(10),
        };
        kill(lab, peer, kills);
    });
}
