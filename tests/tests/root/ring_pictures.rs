//! The law of importance through real sockets: at twice the link's rate the ring's default method gives up nothing
//! for what matters less.

use crate::ring_lab::{Line, congestion_controls, pictures::Source};

#[test]
fn key_frames_and_references_arrive_with_all_audio_at_twice_the_rate() {
    for congestion_control in congestion_controls() {
        let source = Source {
            seconds: 10,
            key: 26_000,
            audio: 300,
            parts: false,
        };
        let seen = source.stream(&Line::new(1_000), congestion_control);
        let [base, _, top] = seen.layers;
        assert!(
            seen.audio.in_time * 100 >= seen.audio.pushed * 98,
            "{seen:?}"
        );
        assert_eq!(seen.keys.in_time, seen.keys.pushed, "{seen:?}");
        assert!(base.in_time * 100 >= base.pushed * 98, "{seen:?}");
        // Something has to go.
        assert!(top.predicted * 2 > top.pushed, "{seen:?}");
        assert!(seen.decodable.0 * 100 >= seen.decodable.1 * 35, "{seen:?}");
    }
}

#[test]
fn key_frame_that_takes_longer_than_audio_may_wait_is_refused_unless_in_parts() {
    for parts in [false, true] {
        let source = Source {
            seconds: 8,
            key: 38_000,
            audio: 200,
            parts,
        };
        let seen = source.stream(&Line::new(1_000), congestion_controls()[0]);
        let arrived = if parts { seen.keys.pushed } else { 0 };
        assert_eq!(seen.keys.in_time, arrived, "{seen:?}");
        assert_eq!(seen.keys.predicted, seen.keys.pushed - arrived, "{seen:?}");
        assert!(
            seen.audio.in_time * 100 >= seen.audio.pushed * 98,
            "{seen:?}"
        );
    }
}
