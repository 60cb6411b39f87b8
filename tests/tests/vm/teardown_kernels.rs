//! `bestbyd teardown` where programs are attached by tcx (6.12, the newest) and where by clsact filters (6.1).

use std::fs;

use bestby_tests::agent::root_qdisc;
use bestby_tests::netns::linked_lab;
use bestby_tests::require;

use crate::teardown_lab::{leave, left, left_by_an_agent, segments, teardown};

#[test]
fn both_sides_of_an_interface_are_given_back_with_pins_and_without() {
    linked_lab(require::root(), |lab, peer| {
        let before = (root_qdisc(&lab.netns, "v0"), segments(lab));
        for pins in [true, false] {
            left_by_an_agent(lab);
            if !pins {
                fs::remove_dir_all(&lab.bpffs).unwrap();
            }
            println!("pins {pins}: {}", teardown(lab));
            assert_eq!(left(lab, "v0"), "", "pins {pins}");
            assert_eq!((root_qdisc(&lab.netns, "v0"), segments(lab)), before);
            // Teardown removes the directory, too.
            fs::create_dir_all(&lab.bpffs).unwrap();
        }
        assert!(leave(lab, peer) >= 20);
    });
}
