//! A selective forwarding unit: one speaker's media to N clients from one socket.
//!
//! Each packet arrives from the speaker's uplink, one after another, and is forwarded
//! to all clients in turn before the next: every client's stream is the same media,
//! and a frame leaves the host as a burst of N × its packets. Stream n is client n;
//! each client is a session of its own where its address is.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use super::{
    Schedule,
    build::{Adu, Builder, check_sum},
    gop,
};

/// What can be chosen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Parameters {
    /// Clients, 1..=1000.
    pub clients: u16,
    /// What the speaker sends.
    pub media: gop::Parameters,
    /// The speaker's uplink, Mbit/s: how far apart a frame's packets arrive.
    pub uplink_mbit: f64,
    /// From one client to the next, µs: what one send and its encryption take.
    pub send_us: u64,
}

impl Default for Parameters {
    fn default() -> Self {
        Self {
            clients: 8,
            media: gop::Parameters::default(),
            uplink_mbit: 20.0,
            send_us: 10,
        }
    }
}

impl Parameters {
    pub(super) fn check(&self) -> Result<()> {
        ensure!(
            (1..=1000).contains(&self.clients),
            "clients = {} is not within 1..=1000",
            self.clients
        );
        // Below a tenth of a Mbit/s no speaker sends video; NaN is in no range.
        ensure!(
            (0.1..=10_000.0).contains(&self.uplink_mbit),
            "uplink_mbit = {} is not within 0.1..=10000 Mbit/s",
            self.uplink_mbit
        );
        ensure!(
            self.send_us <= MOST_SEND_US,
            "send_us = {} is not within 0..={MOST_SEND_US} µs",
            self.send_us
        );
        self.media.check()?;
        check_sum("clients", self.clients, self.media.rate_kbit)
    }
}

/// A send of 10 ms is no relay any more: 8 clients would wait longer than media live.
const MOST_SEND_US: u64 = 10_000;

/// `seconds` of forwarding; the same for the same seed.
pub fn schedule(parameters: &Parameters, seconds: u64, seed: u64) -> Result<Schedule> {
    let Parameters {
        clients,
        uplink_mbit,
        send_us,
        ..
    } = *parameters;
    parameters.check()?;
    let mut builder = Builder::default();
    // When the uplink has delivered all that was sent on it, ns.
    let mut uplink_free = 0;
    for unit in gop::units(&parameters.media, seconds, seed)? {
        let mut arrivals = Vec::with_capacity(unit.parts.len());
        for &bytes in &unit.parts {
            uplink_free = unit.at.max(uplink_free)
                + (f64::from(bytes) * 8.0 * 1e3 / uplink_mbit).round() as u64;
            arrivals.push((uplink_free, bytes));
        }
        for stream in 0..clients {
            let parts: Vec<(u64, u32)> = arrivals
                .iter()
                .map(|&(at, bytes)| (at + u64::from(stream) * send_us * 1000, bytes))
                .collect();
            builder.add(Adu {
                class: unit.class,
                stream,
                deadline: parts[0].0 + unit.lifetime,
                parts,
            });
        }
    }
    Ok(builder.finish(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{
        Class,
        tests::{adus, rate_kbit},
    };

    #[test]
    fn every_client_gets_the_same_media() {
        let parameters = Parameters {
            clients: 5,
            ..Parameters::default()
        };
        let schedule = schedule(&parameters, 4, 3).expect("a schedule");
        assert_eq!(schedule.streams(), 5);
        let of = |stream| -> Vec<(Class, u32, u32)> {
            adus(&schedule)
                .into_iter()
                .filter(|adu| adu.stream == stream)
                .map(|adu| (adu.class, adu.packets, adu.bytes))
                .collect()
        };
        assert!(of(0).len() > 300);
        for stream in 1..5 {
            assert_eq!(of(0), of(stream));
        }
        let video = rate_kbit(&schedule, Class::Video);
        let speaker = rate_kbit(
            &gop::schedule(&parameters.media, 4, 3).expect("a schedule"),
            Class::Video,
        );
        assert!((video / 5.0 / speaker - 1.0).abs() < 0.03, "{video}");
    }

    #[test]
    fn a_packet_goes_to_all_before_the_next_comes() {
        let parameters = Parameters {
            clients: 3,
            ..Parameters::default()
        };
        let schedule = schedule(&parameters, 1, 3).expect("a schedule");
        assert!(schedule.packets.is_sorted_by_key(|p| p.at));
        let frame: Vec<_> = schedule
            .packets
            .iter()
            .filter(|p| p.class == Class::Video)
            .take(9)
            .collect();
        let streams: Vec<u16> = frame.iter().map(|p| p.stream).collect();
        assert_eq!(streams, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
        assert_eq!(frame[1].at - frame[0].at, 10_000);
        // 1242 bytes at 20 Mbit/s.
        assert_eq!(frame[3].at - frame[0].at, 496_800);
        // One deadline for all packets of a client's frame.
        assert_eq!(
            frame[0].at + frame[0].lifetime,
            frame[6].at + frame[6].lifetime
        );
        assert_eq!(frame[0].adu, frame[6].adu);
        assert_ne!(frame[0].adu, frame[1].adu);
    }

    #[test]
    fn edges() {
        let none = Parameters {
            clients: 0,
            ..Parameters::default()
        };
        assert!(schedule(&none, 1, 1).is_err());
        let stopped = Parameters {
            uplink_mbit: 0.0,
            ..Parameters::default()
        };
        assert!(schedule(&stopped, 1, 1).is_err());
        let one = Parameters {
            clients: 1,
            ..Parameters::default()
        };
        assert_eq!(schedule(&one, 2, 7).expect("a schedule").streams(), 1);
        assert_eq!(
            schedule(&one, 2, 7).expect("a schedule"),
            schedule(&one, 2, 7).expect("a schedule")
        );
    }
}
