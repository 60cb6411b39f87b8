//! The packets of a run as a table, one row each, so that anyone can judge the run anew: `class`,
//! `stream` (of media, or a relay's client), `adu`, `last` (of its ADU), `wire_bytes` (with the
//! MAC header), `created`, `deadline` and `arrived` (ns since the start of the run; null = never).

use anyhow::Result;

use crate::{
    columns::{Column, Columns},
    traffic::{Packet, Schedule, receiver::Arrival, sender::Sent},
};

/// The packets of a run in the order of its schedule: of those that arrived more than once the
/// first arrival. `extra_delay` ns is added to every arrival, see `topology`.
pub fn packets(
    schedule: &Schedule,
    sent: &Sent,
    arrivals: &[Arrival],
    extra_delay: u64,
) -> Columns {
    let packets = &schedule.packets;
    let first = packets.first().zip(sent.created.first());
    let start = first.map_or(0, |(packet, created)| created - packet.at);
    let (arrived, _) = Arrival::firsts(arrivals, packets.len(), extra_delay);
    let arrived = arrived.into_iter();
    let int =
        |of: fn(&Packet) -> u64| Column::Int(packets.iter().map(|p| Some(of(p) as i64)).collect());
    let class = packets.iter().map(|p| Some(p.class.name().to_owned()));
    let last = packets.iter().map(|p| Some(p.last));
    let since = |at: u64| at.saturating_sub(start) as i64;
    let columns = [
        ("class", Column::Text(class.collect())),
        ("stream", int(|p| p.stream.into())),
        ("adu", int(|p| p.adu.into())),
        ("last", Column::Flag(last.collect())),
        ("wire_bytes", int(|p| p.wire_bytes.into())),
        ("created", int(|p| p.at)),
        ("deadline", int(|p| p.at + p.lifetime)),
        (
            "arrived",
            Column::Int(arrived.map(|at| at.map(since)).collect()),
        ),
    ];
    Columns {
        columns: columns
            .map(|(name, column)| (name.to_owned(), column))
            .into(),
        said: Vec::new(),
    }
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// ns since the start of the run.
    pub created: u64,
    /// Bytes with the MAC header.
    pub wire_bytes: u32,
    /// Whether it arrived at all.
    pub arrived: bool,
    /// Whether it arrived by its deadline.
    pub on_time: bool,
}

/// The same from the columns of [`packets`].
pub fn seen(table: &Columns) -> Result<Vec<Seen>> {
    let [created, bytes, deadline, arrived] =
        ["created", "wire_bytes", "deadline", "arrived"].map(|name| table.ints(name));
    let rows = created?.iter().zip(bytes?).zip(deadline?).zip(arrived?);
    let seen = rows.map(|(((created, bytes), deadline), arrived)| Seen {
        created: created.unwrap_or_default() as u64,
        wire_bytes: bytes.unwrap_or_default() as u32,
        arrived: arrived.is_some(),
        on_time: arrived.is_some_and(|at| Some(at) <= *deadline),
    });
    Ok(seen.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::{Class, wire::Record};

    #[test]
    fn packets_times_count_from_the_start_and_the_first_arrival_counts() {
        let packet = |at| Packet {
            at,
            lifetime: 200,
            ..Packet::of(Class::Audio, 0)
        };
        let schedule = Schedule {
            packets: [20, 40, 60].map(packet).into(),
            duration: 100,
        };
        let sent = Sent {
            created: vec![1020, 1040, 1060],
            ..Sent::default()
        };
        // The last has a sequence that the schedule does not know.
        let arrivals = [(1, 1100), (1, 1101), (2, 1121), (9, 1102)].map(|(sequence, at)| Arrival {
            record: Record {
                sequence,
                created: 0,
            },
            whole: true,
            at,
        });
        let table = packets(&schedule, &sent, &arrivals, 140);
        let arrived = table.ints("arrived").expect("there");
        assert_eq!(arrived, [None, Some(240), Some(261)]);
        let seen = seen(&table).expect("seen");
        let fates: Vec<_> = seen.iter().map(|s| (s.arrived, s.on_time)).collect();
        assert_eq!(fates, [(false, false), (true, true), (true, false)]);
    }
}
