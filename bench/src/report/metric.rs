//! What page and tables show of a run: one figure each, with its name and its precision.

use crate::{
    measure::statistics::{Difference, Estimate},
    series::summary::{CellSummary, RunSummary},
};

/// One figure of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Metric {
    /// Head of its column, unit included.
    pub(super) label: &'static str,
    /// What it is, for the page's notes.
    pub(super) meaning: &'static str,
    /// Digits behind the point.
    pub(super) digits: usize,
    /// Absent where the run has no such thing (no audio, no bound, no bestby).
    pub(super) of: fn(&RunSummary) -> Option<f64>,
}

/// How many ADUs of a run 100 % of a figure are.
type Whole = fn(&RunSummary) -> u64;

/// Figures that count ADUs in %, by the heads of their columns.
const COUNTED: [(&str, Whole); 5] = [
    (ADUS.label, |run| run.measures.adus[0]),
    (AUDIO.label, |run| run.measures.audio[0]),
    (FRAMES.label, |run| run.measures.frames[0]),
    (OBJECTS.label, |run| run.measures.objects[0]),
    (FALSE_DROPS.label, |run| run.measures.adus[0]),
];

/// Complete ADUs on time: what queues are compared by.
pub(super) const ADUS: Metric = Metric {
    label: "ADUs %",
    meaning: "ADUs (audio packets, video frames, data objects) of which every packet arrived by its deadline, of all that were offered",
    digits: 2,
    of: |run| share(run.measures.adus),
};

/// Audio on time.
pub(super) const AUDIO: Metric = Metric {
    label: "audio %",
    meaning: "audio packets that arrived by their deadline",
    digits: 2,
    of: |run| share(run.measures.audio),
};

/// Video frames on time.
pub(super) const FRAMES: Metric = Metric {
    label: "frames %",
    meaning: "video frames of which every packet arrived by its deadline",
    digits: 2,
    of: |run| share(run.measures.frames),
};

/// Video frames on time beside what is possible.
pub(super) const FRAMES_OF_BOUND: Metric = Metric {
    label: "frames of bound %",
    meaning: "complete frames on time in percent of the clairvoyant bound when as much audio as possible is on time; more than 100 for a queue that pays for frames with audio",
    digits: 1,
    of: |run| part(run.measures.frames[1], run.bound?.video.adus),
};

/// Data objects on time.
pub(super) const OBJECTS: Metric = Metric {
    label: "objects %",
    meaning: "data objects of which every packet arrived by its deadline",
    digits: 2,
    of: |run| share(run.measures.objects),
};

/// What was given up for nothing.
pub(super) const FALSE_DROPS: Metric = Metric {
    label: "false drops %",
    meaning: "ADUs dropped, in part or whole, although there was room for them beside all that arrived on time, of all that were offered",
    digits: 2,
    of: |run| part(run.false_drops?.total(), run.measures.adus[0]),
};

/// What arrived too late.
pub(super) const STALE: Metric = Metric {
    label: "stale",
    meaning: "packets that arrived after their deadline",
    digits: 1,
    of: |run| Some(run.measures.stale_arrivals as f64),
};

/// All columns in order. A column is shown where any run has the figure.
pub(super) const COLUMNS: &[Metric] = &[
    ADUS,
    AUDIO,
    FRAMES,
    Metric {
        label: "video %",
        meaning: "video packets that arrived by their deadline, whatever became of the rest of their frame",
        digits: 2,
        of: |run| share(run.measures.video),
    },
    OBJECTS,
    Metric {
        label: "audio of bound %",
        meaning: "audio on time in percent of the clairvoyant bound: what a schedule that knows the future could do",
        digits: 1,
        of: |run| part(run.measures.audio[1], run.bound?.audio.adus),
    },
    FRAMES_OF_BOUND,
    Metric {
        label: "ADUs of bound %",
        meaning: "complete ADUs of all classes on time in percent of what the clairvoyant bound has of all classes together (audio first)",
        digits: 1,
        of: |run| {
            let bound = run.bound?;
            let most = bound.audio.adus + bound.video.adus + bound.data.adus;
            part(run.measures.adus[1], most)
        },
    },
    Metric {
        label: "objects of bound %",
        meaning: "complete data objects on time in percent of the clairvoyant bound when as many audio packets and frames as possible are on time",
        digits: 1,
        of: |run| part(run.measures.objects[1], run.bound?.data.adus),
    },
    FALSE_DROPS,
    Metric {
        label: "decoded %",
        meaning: "pictures for which the decoder returned one, of all of the source",
        digits: 1,
        of: |run| {
            let picture = run.measures.picture?;
            share([picture.pictures, picture.decoded])
        },
    },
    Metric {
        label: "intact %",
        meaning: "pictures that are, pixel for pixel, what an undisturbed player shows",
        digits: 1,
        of: |run| {
            let picture = run.measures.picture?;
            share([picture.pictures, picture.intact])
        },
    },
    Metric {
        label: "SSIM",
        meaning: "structural similarity of what is shown to the source, mean of all pictures; a missing one is the last before it",
        digits: 4,
        of: |run| Some(run.measures.picture?.ssim),
    },
    Metric {
        label: "undisturbed",
        meaning: "SSIM of an undisturbed player: what coding alone costs",
        digits: 4,
        of: |run| Some(run.measures.picture?.ssim_undisturbed),
    },
    Metric {
        label: "useful kbit/s",
        meaning: "bytes of the ADUs that were complete on time, per second of the time that was judged",
        digits: 0,
        of: |run| Some(run.measures.goodput_kbit),
    },
    STALE,
    Metric {
        label: "stale kB",
        meaning: "bytes of the packets that arrived after their deadline, in 1000",
        digits: 1,
        of: |run| Some(run.measures.stale_bytes as f64 / 1e3),
    },
    Metric {
        label: "late ms",
        meaning: "longest time by which a packet missed its deadline",
        digits: 1,
        of: |run| Some(run.measures.latest_ms),
    },
    Metric {
        label: "audio p50 ms",
        meaning: "delay from creation to arrival, of the audio packets that arrived: median",
        digits: 1,
        of: |run| offered(run.measures.audio).then_some(run.measures.audio_delay.p50),
    },
    Metric {
        label: "audio p95",
        meaning: "the same, 95th percentile",
        digits: 1,
        of: |run| offered(run.measures.audio).then_some(run.measures.audio_delay.p95),
    },
    Metric {
        label: "audio p99",
        meaning: "the same, 99th percentile",
        digits: 1,
        of: |run| offered(run.measures.audio).then_some(run.measures.audio_delay.p99),
    },
    Metric {
        label: "video p50 ms",
        meaning: "delay of the video packets that arrived: median",
        digits: 1,
        of: |run| offered(run.measures.video).then_some(run.measures.video_delay.p50),
    },
    Metric {
        label: "video p95",
        meaning: "the same, 95th percentile",
        digits: 1,
        of: |run| offered(run.measures.video).then_some(run.measures.video_delay.p95),
    },
    Metric {
        label: "video p99",
        meaning: "the same, 99th percentile",
        digits: 1,
        of: |run| offered(run.measures.video).then_some(run.measures.video_delay.p99),
    },
    Metric {
        label: "data p99 ms",
        meaning: "delay of the data packets that arrived: 99th percentile",
        digits: 1,
        of: |run| offered(run.measures.data).then_some(run.measures.data_delay.p99),
    },
    Metric {
        label: "Jain",
        meaning: "Jain's index between streams (clients, sessions), of the useful part of what each offered; 1 = all alike",
        digits: 3,
        of: |run| run.measures.fairness,
    },
    Metric {
        label: "worst stream %",
        meaning: "ADUs on time of the stream that fared worst",
        digits: 1,
        of: |run| run.measures.worst_stream,
    },
    Metric {
        label: "TCP's share",
        meaning: "part of all bytes on the wire delivered that was that of the competing TCP flows; an even share of n flows is n / (n + 1)",
        digits: 3,
        of: |run| Some(run.measures.tcp_share?.wire),
    },
    Metric {
        label: "audio received %",
        meaning: "audio packets that arrived at all, also late, where a congestion control decides how much is sent",
        digits: 2,
        of: |run| share(run.delivery?.audio),
    },
    Metric {
        label: "video received %",
        meaning: "the same of video packets",
        digits: 2,
        of: |run| share(run.delivery?.video),
    },
    Metric {
        label: "sent kbit/s",
        meaning: "bytes on the wire that left the sending host under TFRC, per second of the time that was judged",
        digits: 1,
        of: |run| Some(run.measures.tfrc?.sent_kbit),
    },
    Metric {
        label: "received kbit/s",
        meaning: "bytes on the wire that arrived, also late, per second of the time that was judged",
        digits: 1,
        of: |run| Some(run.delivery?.kbit),
    },
    Metric {
        label: "TCP kbit/s",
        meaning: "bytes on the wire that the competing TCP flows delivered together in the same time",
        digits: 1,
        of: |run| run.measures.tcp_share?.beside(run.delivery?.kbit),
    },
    Metric {
        label: "lost %",
        meaning: "packets that left the sending host under TFRC and never arrived, of those that left",
        digits: 2,
        of: |run| {
            let tfrc = run.measures.tfrc?;
            part(tfrc.lost, tfrc.left)
        },
    },
    Metric {
        label: "RTT ms",
        meaning: "mean of TFRC's smoothed round trip",
        digits: 1,
        of: |run| Some(run.measures.tfrc?.rtt_ms),
    },
    Metric {
        label: "tail drops",
        meaning: "packets that found the queue full, where it is the sending program's own (`pfifo N` below TFRC and DCCP)",
        digits: 1,
        of: |run| Some(run.measures.tail_drops? as f64),
    },
    Metric {
        label: "sender late ms",
        meaning: "longest time by which the sender itself was late: no queue's doing",
        digits: 2,
        of: |run| Some(run.measures.sender_late_ms),
    },
    Metric {
        label: "sent stale",
        meaning: "packets that bestby says it sent although they were stale",
        digits: 1,
        of: |run| Some(run.measures.queue?.sent_stale as f64),
    },
];

impl Metric {
    /// Over the runs of a cell.
    pub(super) fn estimate(&self, cell: &CellSummary) -> Option<Estimate> {
        Estimate::of(&self.values(cell))
    }

    /// Of each run that has it.
    pub(super) fn values(&self, cell: &CellSummary) -> Vec<f64> {
        cell.runs.iter().filter_map(self.of).collect()
    }

    /// Of each repetition that both cells have.
    pub(super) fn pairs(&self, first: &CellSummary, second: &CellSummary) -> Vec<[f64; 2]> {
        let same = |run: &RunSummary| second.runs.iter().find(|other| other.number == run.number);
        let pair = |run| Some([(self.of)(run)?, (self.of)(same(run)?)?]);
        first.runs.iter().filter_map(pair).collect()
    }

    /// The paired t-test of a cell's runs with others. No run is believed to vary less than
    /// one ADU does, nor a figure that counts none less than the last digit shown.
    pub(super) fn test(&self, cell: &CellSummary, pairs: &[[f64; 2]]) -> Option<Difference> {
        let counted = COUNTED.iter().find(|(label, _)| *label == self.label);
        let adus = counted.zip(cell.runs.first()).map(|((_, of), run)| of(run));
        let step = match adus {
            Some(adus) if adus > 0 => 100.0 / adus as f64,
            _ => 0.1_f64.powi(self.digits as i32),
        };
        Difference::paired(pairs, step)
    }

    /// What one cell has more than another in the repetitions that both have, `+2.30 ± 0.80`
    /// (the paired t-test's 95 % interval); of one repetition without `±`.
    pub(super) fn more(&self, cell: &CellSummary, other: &CellSummary) -> Option<String> {
        let digits = self.digits;
        let pairs = self.pairs(cell, other);
        Some(match (self.test(cell, &pairs), &pairs[..]) {
            (Some(test), _) => format!("{:+.digits$} ± {:.digits$}", test.mean, test.half_width),
            (None, [[first, second], ..]) => format!("{:+.digits$}", first - second),
            (None, []) => return None,
        })
    }

    /// Digits behind the point where several figures share a cell: one less, but not of what is
    /// wanted to be next to nothing.
    pub(super) fn brief(&self) -> usize {
        match self.label == FALSE_DROPS.label || self.label == STALE.label {
            true => self.digits,
            false => self.digits.saturating_sub(1),
        }
    }

    /// `54.50 ± 1.25`, without `±` where one run says nothing of its certainty.
    pub(super) fn text(&self, estimate: &Estimate) -> String {
        let digits = self.digits;
        match estimate.half_width {
            Some(half) => format!("{:.digits$} ± {half:.digits$}", estimate.mean),
            None => format!("{:.digits$}", estimate.mean),
        }
    }
}

fn offered([of, _]: [u64; 2]) -> bool {
    of > 0
}

fn share([of, count]: [u64; 2]) -> Option<f64> {
    part(count, of)
}

fn part(count: u64, of: u64) -> Option<f64> {
    (of > 0).then(|| count as f64 * 100.0 / of as f64)
}
