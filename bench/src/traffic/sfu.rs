//! A selective forwarding unit: one speaker's media to N clients from one socket.
//!
//! Each packet arrives from the speaker's uplink, one after another, and is forwarded
//! to all clients in turn before the next: every client's stream is the same media,
//! and a frame leaves the host as a burst of N × its packets. Stream n is client n;
//! each client is a session of its own where its address is.

use std::collections::BTreeSet;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::{
    Class, Schedule,
    build::{self, Adu, Traffic, check_rate, within},
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

impl Traffic for Parameters {
    fn check(&self) -> Result<()> {
        within("clients", self.clients, 1..=1000)?;
        // Below a tenth of a Mbit/s no speaker sends video.
        within("uplink_mbit", self.uplink_mbit, 0.1..=10_000.0)?;
        // A send of 10 ms is no relay any more: 8 clients would wait longer than media live.
        within("send_us", self.send_us, 0..=10_000)?;
        self.media.check()?;
        check_rate(self.media.rate_kbit, self.clients)
    }

    fn schedule(&self, seconds: u64, seed: u64) -> Result<Schedule> {
        self.check()?;
        let mut adus = Vec::new();
        // When the uplink has delivered all that was sent on it, ns.
        let mut uplink_free = 0;
        for mut adu in self.media.adus(seconds, seed)? {
            let lifetime = adu.deadline - adu.parts[0].0;
            for (at, bytes) in &mut adu.parts {
                let takes = (f64::from(*bytes) * 8.0 * 1e3 / self.uplink_mbit).round();
                uplink_free = uplink_free.max(*at) + takes as u64;
                *at = uplink_free;
            }
            for stream in 0..self.clients {
                let later = u64::from(stream) * self.send_us * 1000;
                let parts = adu.parts.iter();
                let parts: Vec<_> = parts.map(|&(at, bytes)| (at + later, bytes)).collect();
                adus.push(Adu {
                    class: adu.class,
                    stream,
                    deadline: parts[0].0 + lifetime,
                    parts,
                });
            }
        }
        Ok(build::schedule(adus, seconds))
    }

    fn classes(&self) -> Option<BTreeSet<Class>> {
        self.media.classes()
    }

    fn is_relay(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::tests::{adus, rate_kbit};

    #[test]
    fn sfu_packet_goes_to_all_before_the_next_and_all_get_the_same_media() {
        let parameters = Parameters {
            clients: 3,
            ..Parameters::default()
        };
        let schedule = parameters.schedule(4, 3).expect("a schedule");
        assert_eq!(schedule.streams(), 3);
        let adus = adus(&schedule);
        let of = |stream| {
            let own = adus.iter().filter(move |adu| adu.stream == stream);
            own.map(|adu| (adu.class, adu.packets, adu.bytes))
        };
        assert!(of(0).count() > 300 && of(1).eq(of(0)) && of(2).eq(of(0)));
        let speaker = parameters.media.schedule(4, 3).expect("a schedule");
        let [all, one] = [&schedule, &speaker].map(|s| rate_kbit(s, Class::Video));
        assert!((all / 3.0 / one - 1.0).abs() < 0.03, "{all} of {one}");

        let video = schedule.packets.iter().filter(|p| p.class == Class::Video);
        let frame: Vec<_> = video.take(9).collect();
        let streams: Vec<u16> = frame.iter().map(|p| p.stream).collect();
        assert_eq!(streams, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
        assert_eq!(frame[1].at - frame[0].at, 10_000);
        // 1242 bytes at 20 Mbit/s.
        assert_eq!(frame[3].at - frame[0].at, 496_800);
        assert_eq!(frame[0].adu, frame[6].adu);
        assert_ne!(frame[0].adu, frame[1].adu);
    }
}
