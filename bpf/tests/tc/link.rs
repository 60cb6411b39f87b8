//! A sender, the model of mode tc and the tree below it, in virtual time.

use std::collections::VecDeque;

use super::*;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) at: u64,
    pub(crate) stream: usize,
    pub(crate) frame: usize,
    /// What the test counts by.
    pub(crate) class: usize,
    pub(crate) priority: u8,
    pub(crate) lifetime: u64,
    pub(crate) bytes: u64,
    /// The last packet of a frame, and says so.
    pub(crate) last: bool,
    /// What it says of its frame: `BB_ADU_KEY`, `BB_ADU_OTHER`, or 0.
    pub(crate) says: u8,
}

/// A priority for which a lifetime counts as itself.
const BB_TC_NEUTRAL: u32 = 4;

unsafe extern "C" {
    safe fn bbn_frame_place(stream: &mut bb_stream, piece: &mut bb_piece, which: &mut u32) -> u32;
    safe fn bbn_frame_begin(stream: &mut bb_stream, piece: &bb_piece, which: &mut u32) -> i32;
}

/// Leaves in strict order, each in order of arrival, over a link of `rate` bytes/s.
struct Tree {
    rate: u64,
    free: u64,
    leaves: [VecDeque<usize>; 9],
}

impl Tree {
    /// Sends what begins to leave before `until`.
    fn send(&mut self, packets: &[Packet], left: &mut [Option<u64>], until: u64) {
        while self.free < until {
            let Some(leaf) = self.leaves.iter_mut().find(|l| !l.is_empty()) else {
                self.free = until;
                return;
            };
            let index = leaf.pop_front().expect("not empty");
            left[index] = Some(self.free);
            self.free += bbn_tx_time(packets[index].bytes, self.rate);
        }
    }
}

/// What is asked of the model.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asks {
    /// As the classifier does.
    Frames,
    /// As if each packet came for itself, the first one for 13/16 of a frame.
    Packets,
    /// As the classifier does where the role alone says the priority: all in one order.
    Roles,
    /// As the classifier, but the order is that of the lifetimes alone.
    Lifetimes,
}

/// When each packet begins to leave; those that are refused do not.
pub(crate) fn run(packets: &[Packet], rate: u64, owd: u64, asks: Asks) -> Vec<Option<u64>> {
    let mut model = Model::new(rate);
    let count = 1 + packets.iter().map(|p| p.stream).max().unwrap_or(0);
    let mut streams = vec![bb_stream::default(); count];
    let mut left = vec![None; packets.len()];
    let mut tree = Tree {
        rate,
        free: START,
        leaves: Default::default(),
    };
    for (index, p) in packets.iter().enumerate() {
        tree.send(packets, &mut left, p.at);
        model.now = p.at;
        let s = &mut streams[p.stream];
        let mut piece = bb_piece {
            now: p.at,
            lifetime: p.lifetime,
            source: p.frame as u32 + 1,
            bytes: p.bytes as u32,
            seq: index as u16,
            rtp: 0x80 | 96,
            ..Default::default()
        };
        let mut which = 0;
        if bbn_frame_place(s, &mut piece, &mut which) == BB_PLACE_NEW {
            bbn_frame_begin(s, &piece, &mut which);
        }
        let at = which as usize & 1;
        let used = if s.leaf >> 4 == p.priority {
            s.leaf & 15
        } else {
            0
        };
        let weight = match asks {
            Asks::Lifetimes => BB_TC_NEUTRAL,
            Asks::Roles => u32::from(p.priority).min(BB_PRIORITY_DEFAULT),
            _ => p.priority.into(),
        };
        let leaf = bbn_tc_leaf(p.lifetime, weight, used);
        s.leaf = leaf | p.priority << 4;
        let before = s.adu[at].bytes;
        s.adu[at].bytes += p.bytes as u32;
        s.adu[at].leaf = leaf;
        s.adu[at].flags |= p.says;
        if s.adu[at].flags & BB_ADU_DEAD as u8 != 0 {
            continue;
        }
        let mut r = model.packet(leaf, p.priority, p.bytes, 1);
        r.latest = s.adu[at].first_ns + p.lifetime - owd;
        r.stream = p.stream as u32 + 1;
        r.late_leaf = bbn_tc_leaf(p.lifetime, BB_TC_NEUTRAL, 0);
        if asks != Asks::Packets {
            bbn_tc_frame(&mut r, s, which, before, p.last.into());
        } else if before == 0 {
            r.need_ns = r
                .need_ns
                .max(bbn_tx_time(u64::from(s.avg_bytes) * 13 / 16, rate));
        }
        if asks == Asks::Lifetimes {
            (r.late_leaf, r.has_ns) = (0, 0);
        }
        let (verdict, at_leaf) = model.ask(r);
        let admitted = verdict == ADMIT;
        s.adu[at].promised = if admitted { r.more_ns as u32 } else { 0 };
        s.adu[at].flags |= if admitted { 0 } else { BB_ADU_DEAD as u8 };
        if admitted {
            tree.leaves[usize::from(at_leaf)].push_back(index);
        }
    }
    tree.send(packets, &mut left, u64::MAX / 2);
    left
}

/// Of one class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Class {
    pub(crate) frames: usize,
    /// Frames of which each packet began to leave in time.
    pub(crate) whole: usize,
    /// From arrival to the last bit, ms, sorted.
    pub(crate) delays: Vec<u64>,
}

impl Class {
    /// The delay that `percent` of the packets do not exceed, ms.
    pub(crate) fn delay(&self, percent: usize) -> u64 {
        self.delays[(self.delays.len() - 1) * percent / 100]
    }
}

/// What came of it, class by class; and per cent of the packets let through that belong to frames
/// which are not whole or late, without class 0.
pub(crate) fn judge(
    packets: &[Packet],
    left: &[Option<u64>],
    rate: u64,
    owd: u64,
) -> (Vec<Class>, f64) {
    let frames = 1 + packets.iter().map(|p| p.frame).max().unwrap_or(0);
    let (mut first, mut missing) = (vec![u64::MAX; frames], vec![0usize; frames]);
    let mut classes =
        vec![Class::default(); 1 + packets.iter().map(|p| p.class).max().unwrap_or(0)];
    for (p, left) in packets.iter().zip(left) {
        first[p.frame] = first[p.frame].min(p.at);
        let timely = left.is_some_and(|at| at <= first[p.frame] + p.lifetime - owd);
        missing[p.frame] += usize::from(!timely);
        if let Some(at) = left {
            let ends = at + bbn_tx_time(p.bytes, rate);
            classes[p.class].delays.push((ends - p.at) / MS);
        }
    }
    let (mut through, mut wasted) = (0, 0);
    for (p, left) in packets.iter().zip(left) {
        if p.last {
            classes[p.class].frames += 1;
            classes[p.class].whole += usize::from(missing[p.frame] == 0);
        }
        if left.is_some() && p.class != 0 {
            through += 1;
            wasted += usize::from(missing[p.frame] != 0);
        }
    }
    for class in &mut classes {
        class.delays.sort_unstable();
    }
    (
        classes,
        100.0 * wasted as f64 / f64::max(1.0, through as f64),
    )
}

/// `count` packets of one frame, spread over `spread` ns.
pub(crate) fn frame(packets: &mut Vec<Packet>, of: Packet, count: u64, spread: u64) {
    for i in 0..count {
        packets.push(Packet {
            at: of.at + i * spread / count,
            last: i + 1 == count,
            ..of
        });
    }
}
