//! `TCP_INFO`: congestion window, what is in flight, rate, RTT. Each kernel gives as much of it as it knows.

use super::types::Form;
use crate::path::Report;

/// `struct tcp_info` of Linux 6.18 is shorter; what is behind is not read.
pub(super) const BYTES: usize = 256;

// Offsets in `struct tcp_info` (`linux/tcp.h`), the same on all of Linux.
const STATE: usize = 0;
const DELIVERY_RATE_APP_LIMITED: usize = 7;
const SND_MSS: usize = 16;
const UNACKED: usize = 24;
const SACKED: usize = 28;
const LOST: usize = 32;
const RETRANS: usize = 36;
const RTT: usize = 68;
const SND_CWND: usize = 80;
const TOTAL_RETRANS: usize = 100;
/// Since Linux 4.1.
const BYTES_ACKED: usize = 120;
/// Since Linux 4.6.
const NOTSENT_BYTES: usize = 144;
const MIN_RTT: usize = 148;
/// Since Linux 4.9.
const DELIVERY_RATE: usize = 160;
/// Since Linux 5.4.
const SND_WND: usize = 228;

/// The first bit field of a byte.
const FIRST_BIT: u8 = if cfg!(target_endian = "little") {
    1
} else {
    0x80
};

/// Established, and SYN_SENT, SYN_RECV, CLOSE_WAIT: what is written is sent.
const SENDING: [u8; 4] = [1, 2, 3, 8];

/// What a kernel says of one connection; `None` where it says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Info {
    pub(super) state: Option<u8>,
    app_limited: bool,
    mss: u64,
    unacked: u64,
    sacked: u64,
    in_flight: u64,
    rtt_us: u64,
    cwnd: u64,
    retransmitted: u32,
    pub(super) bytes_acked: Option<u64>,
    pub(super) unsent: Option<u64>,
    min_rtt_us: u64,
    rate: Option<u64>,
    window: Option<u64>,
}

fn read<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

impl Info {
    /// `bytes` as the kernel filled them in.
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let u32 = |at| read(bytes, at).map(u32::from_ne_bytes);
        let u64 = |at| read(bytes, at).map(u64::from_ne_bytes);
        let count = |at| u64::from(u32(at).unwrap_or(0));
        let flags = bytes.get(DELIVERY_RATE_APP_LIMITED).copied();
        let gone = count(SACKED) + count(LOST);
        Self {
            state: bytes.get(STATE).copied().filter(|state| *state != 0),
            app_limited: flags.is_none_or(|flags| flags & FIRST_BIT != 0),
            mss: count(SND_MSS),
            unacked: count(UNACKED),
            sacked: count(SACKED),
            in_flight: (count(UNACKED) + count(RETRANS)).saturating_sub(gone),
            rtt_us: count(RTT),
            cwnd: count(SND_CWND),
            retransmitted: u32(TOTAL_RETRANS).unwrap_or(0),
            bytes_acked: u64(BYTES_ACKED),
            unsent: u32(NOTSENT_BYTES).map(u64::from),
            // The kernel's "not yet measured" is the largest value.
            min_rtt_us: u32(MIN_RTT)
                .filter(|us| *us != u32::MAX)
                .unwrap_or(0)
                .into(),
            rate: u64(DELIVERY_RATE),
            window: u32(SND_WND).map(u64::from),
        }
    }

    /// Whether nothing that is written is sent any more; false if it is not known.
    pub(super) fn is_closed(&self) -> bool {
        self.state.is_some_and(|state| !SENDING.contains(&state))
    }

    /// What it is good for. Some systems (gVisor) know of the option, but leave fields empty.
    pub(super) fn form(&self) -> Form {
        let window = self.cwnd > 0 && self.mss > 0;
        Form {
            window,
            rate: window && self.rate.is_some() && self.min_rtt_us > 0,
            unsent: self.unsent.is_some(),
            acknowledged: self.bytes_acked.is_some(),
            events: false,
        }
    }

    /// As the path needs it. `outstanding`: bytes handed over and not acknowledged, if that is known.
    pub(super) fn report(&self, now: u64, outstanding: Option<u64>, unsent: u64) -> Report {
        let segments_in_flight = self.in_flight.saturating_mul(self.mss);
        // Segments may be small: the cap counts bytes.
        let on_the_way = outstanding.map(|bytes| bytes.saturating_sub(unsent));
        let bytes_of = |segments: u64| match on_the_way {
            Some(bytes) if self.unacked > 0 => {
                let bytes = u128::from(bytes) * u128::from(segments) / u128::from(self.unacked);
                bytes.min(segments.saturating_mul(self.mss).into()) as u64
            }
            _ => segments.saturating_mul(self.mss),
        };
        let in_flight = bytes_of(self.in_flight);
        let taken = on_the_way.unwrap_or(self.unacked.saturating_mul(self.mss));
        Report {
            now,
            srtt: self.rtt_us * 1000,
            min_rtt: self.min_rtt_us * 1000,
            rate: self.rate.unwrap_or(0),
            app_limited: self.app_limited,
            retransmitted: self.retransmitted,
            mss: self.mss,
            cwnd: self.cwnd.saturating_mul(self.mss),
            segments_in_flight,
            in_flight,
            unsent,
            window: self.window.map(|window| window.saturating_sub(taken)),
            // Behind a hole, too: otherwise a loss would look like a path that stands still.
            acked: self
                .bytes_acked
                .map(|acked| acked.saturating_add(bytes_of(self.sacked))),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn full() -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[STATE] = 1;
        let mut put = |at: usize, value: u32| {
            bytes[at..at + 4].copy_from_slice(&value.to_ne_bytes());
        };
        put(SND_MSS, 1448);
        put(UNACKED, 10);
        put(SACKED, 2);
        put(LOST, 1);
        put(RETRANS, 1);
        put(RTT, 50_000);
        put(SND_CWND, 20);
        put(TOTAL_RETRANS, 7);
        put(NOTSENT_BYTES, 500);
        put(MIN_RTT, 40_000);
        put(SND_WND, 65_536);
        bytes[BYTES_ACKED..][..8].copy_from_slice(&1_000_000u64.to_ne_bytes());
        bytes[DELIVERY_RATE..][..8].copy_from_slice(&125_000u64.to_ne_bytes());
        bytes
    }

    #[test]
    fn report_counts_what_is_in_flight_in_segments_and_in_bytes() {
        let info = Info::parse(&full());
        assert_eq!(
            info.form(),
            Form {
                window: true,
                rate: true,
                unsent: true,
                acknowledged: true,
                events: false
            }
        );
        // Ten segments of 500 bytes, eight of which are in flight.
        let report = info.report(9, Some(5_500), 500);
        assert_eq!(report.segments_in_flight, 8 * 1448);
        assert_eq!((report.in_flight, report.unsent), (4_000, 500));
        assert_eq!(report.window, Some(65_536 - 5_000));
        assert_eq!(report.acked, Some(1_000_000 + 2 * 500));
        assert_eq!((report.srtt, report.min_rtt), (50_000_000, 40_000_000));
        assert_eq!((report.cwnd, report.rate), (20 * 1448, 125_000));
        assert_eq!(report.retransmitted, 7);
        assert!(!report.app_limited && !info.is_closed());
        let unknown = info.report(9, None, 500);
        assert_eq!(unknown.in_flight, 8 * 1448);
    }

    #[test]
    fn a_shorter_tcp_info_leaves_out_what_it_does_not_have() {
        let bytes = full();
        let form = |len: usize| {
            let form = Info::parse(&bytes[..len]).form();
            (form.window, form.rate, form.unsent, form.acknowledged)
        };
        assert_eq!(form(256), (true, true, true, true));
        assert_eq!(form(228), (true, true, true, true)); // 4.19: no window of the peer
        assert_eq!(form(160), (true, false, true, true)); // 4.8
        assert_eq!(form(144), (true, false, false, true)); // 4.5
        assert_eq!(form(104), (true, false, false, false)); // 3.x
        assert_eq!(form(80), (false, false, false, false));
        assert_eq!(form(0), (false, false, false, false));
        assert_eq!(Info::parse(&bytes[..228]).report(0, None, 0).window, None);
        assert!(!Info::parse(&[0; BYTES]).form().window, "gVisor");
    }

    #[test]
    fn a_connection_that_no_longer_sends_is_closed() {
        let mut bytes = full();
        for (state, closed) in [
            (1, false),
            (8, false),
            (7, true),
            (4, true),
            (9, true),
            (0, false),
        ] {
            bytes[STATE] = state;
            assert_eq!(Info::parse(&bytes).is_closed(), closed, "{state}");
        }
    }

    proptest! {
        /// Whatever the kernel writes.
        #[test]
        fn any_bytes_are_read_without_a_panic(
            bytes in prop::collection::vec(any::<u8>(), 0..300),
            outstanding in any::<Option<u64>>(),
            unsent in any::<u64>(),
        ) {
            let info = Info::parse(&bytes);
            let report = info.report(0, outstanding, unsent);
            prop_assert!(report.in_flight <= report.segments_in_flight);
            let _ = (info.form(), info.is_closed());
        }
    }
}
