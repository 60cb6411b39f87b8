//! The table of flows, and the thread that fills it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bestby_api::{Carried, RtpProfile};

use crate::discover::flow::{Flow, Found};
use crate::discover::packet::{Key, read};
use crate::error::{Result, Tried as _};
use crate::kernel::capture::{Capture, SNAP, mixed};

/// Flows that are told apart.
pub(super) const FLOWS: usize = 4096;
/// Sources of RTP in all of them, some 500 bytes each.
const SOURCES: usize = 16_384;
/// Packets that are looked at each second: a tenth of a processor's time.
const PACKETS_S: u64 = 50_000;
/// How often that is checked.
const PERIOD: Duration = Duration::from_millis(100);
/// One of 2^so many flows is looked at, at least.
const MOST_THIN: u32 = 12;

/// What was seen so far.
#[derive(Debug)]
pub(crate) struct Table {
    flows: HashMap<Key, Flow>,
    /// Further sources for which there is memory.
    room: usize,
    pub(crate) packets: u64,
    /// Packets of flows for which there was no place.
    pub(crate) beyond: u64,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            flows: HashMap::new(),
            room: SOURCES,
            packets: 0,
            beyond: 0,
        }
    }
}

impl Table {
    /// Takes a packet from its network header on.
    pub(crate) fn take(&mut self, bytes: &[u8], tagged: bool, now_ns: u64) {
        self.packets += 1;
        let Some(packet) = read(bytes, tagged) else {
            return;
        };
        let full = self.flows.len() >= FLOWS;
        let flow = match self.flows.get_mut(&packet.key) {
            Some(flow) => flow,
            None if full => {
                self.beyond += 1;
                return;
            }
            None => self
                .flows
                .entry(packet.key)
                .or_insert_with(|| Flow::new(packet.key)),
        };
        // Packets that waited in the socket's buffer when the flow was left out.
        if flow.until_ns.is_none() {
            flow.take(&packet, now_ns, &mut self.room);
        }
    }

    /// From now on only one of 2^`shift` flows comes.
    pub(super) fn thin(&mut self, shift: u32, now_ns: u64) {
        for (key, flow) in &mut self.flows {
            let mixed = mixed(key.src, key.dst, key.sport, key.dport);
            if mixed & ((1 << shift) - 1) != 0 && flow.until_ns.is_none() {
                flow.until_ns = Some(now_ns);
            }
        }
    }

    /// All that was found until now, in the order of the flows' keys.
    pub(crate) fn found(&self, now_ns: u64, profile: RtpProfile) -> Vec<Found> {
        let mut flows: Vec<_> = self.flows.iter().collect();
        flows.sort_by_key(|(key, _)| **key);
        let all = flows.into_iter();
        let mut all: Vec<Found> = all
            .flat_map(|(_, flow)| flow.found(0, now_ns, profile))
            .collect();
        // RIST's simple profile says what it is on the port behind its media.
        let rist: Vec<Key> = all.iter().filter(|f| f.rist).map(|f| f.key).collect();
        for found in &mut all {
            let rtp = matches!(
                found.kind,
                Carried::RtpTs | Carried::Rtp | Carried::Rtx | Carried::Video | Carried::Audio
            );
            let port = found.key.dport.checked_add(1);
            let said =
                |k: &Key| k.src == found.key.src && k.dst == found.key.dst && Some(k.dport) == port;
            if rtp && rist.iter().any(said) {
                found.kind = Carried::Rist;
            }
        }
        all
    }
}

/// What a watch has seen.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) table: Table,
    pub(crate) watched_ns: u64,
    pub(crate) missed: u64,
    pub(crate) one_of: u32,
}

/// Watches what leaves a device until the time is over or `stop` says so.
///
/// # Errors
/// No CAP_NET_RAW, or the device goes away or down.
pub(crate) fn watch(
    dev: &str,
    ifindex: u32,
    time: Duration,
    stop: &Arc<AtomicBool>,
) -> Result<Watched> {
    let what = || format!("interface {dev}: watching what leaves it");
    let capture = Capture::open(ifindex).tried(what)?;
    let mut table = Table::default();
    let mut room = [0; SNAP as usize];
    let begin = Instant::now();
    let (mut shift, mut missed) = (0, 0);
    let (mut period, mut before) = (begin, 0);
    loop {
        let now = Instant::now();
        if now - begin >= time || stop.load(Ordering::Relaxed) {
            break;
        }
        if let Some((bytes, tagged)) = capture.next(&mut room).tried(what)? {
            table.take(bytes, tagged, nanoseconds(begin.elapsed()));
        }
        let since = now - period;
        if since >= PERIOD {
            let lost = capture.missed();
            missed += lost;
            let packets = table.packets - before + lost;
            let allowed = PACKETS_S * u64::try_from(since.as_millis()).unwrap_or(1000) / 1000;
            if packets > allowed.max(1) && shift < MOST_THIN {
                let times = packets.div_ceil(allowed.max(1));
                shift = (shift + times.next_power_of_two().ilog2()).min(MOST_THIN);
                capture.thin(shift).tried(what)?;
                table.thin(shift, nanoseconds(begin.elapsed()));
            }
            (period, before) = (now, table.packets);
        }
    }
    missed += capture.missed();
    Ok(Watched {
        table,
        watched_ns: nanoseconds(begin.elapsed()),
        missed,
        one_of: 1 << shift,
    })
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
