//! An agent in mode tc that does not live long.

use std::time::Duration;

use bestby_tests::netns::linked_lab;
use bestby_tests::{long, require};

use crate::survive_lab::{Kills, kill};

#[test]
fn agent_killed_at_random_points_loses_nothing_it_was_told() {
    linked_lab(require::root(), |lab, peer| {
        let kills = Kills {
            count: long::run(20, 200),
            seed: long::seed(),
            mode: "tc",
            within: Duration::from_millis(150),
        };
        kill(lab, peer, kills);
    });
}
