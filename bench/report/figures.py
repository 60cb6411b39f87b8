"""The figures of a run: what tables and page show, each made of the columns of `runs.parquet`."""

from dataclasses import dataclass

import polars as pl
from polars import col


@dataclass(frozen=True)
class Figure:
    """One figure; null in a run that has no such thing."""

    label: str  # head of its column, with the unit
    digits: int  # behind the point
    of: pl.Expr
    meaning: str
    whole: str | None = None  # of what it counts ADUs in %: the column with 100 %

    @property
    def brief(self):
        """Digits where several figures share a cell: one less, but not of what is to be next to nothing."""
        return self.digits if self.label in ("false drops %", "stale") else max(self.digits - 1, 0)


def percent(part, whole):
    return pl.when(whole > 0).then(part.cast(pl.Float64) * 100 / whole)


def on_time(what):
    return percent(col(f"{what}.on_time"), col(f"{what}.offered"))


def delay(what, rank):
    return pl.when(col(f"{what}.offered") > 0).then(col(f"{what}_delay.{rank}"))


def bound(*classes):
    return sum(col(f"bound.{name}.adus") for name in classes)


FALSE_DROPS = sum(col(f"false_drops.{name}") for name in ("audio", "video", "data"))
RECEIVED = col("received_bytes") * 8 / col("judged_s") / 1000


def layers():
    """What came of each of eight layers."""
    for n in range(1, 9):
        layer = f"carried.layers.{n}"
        yield Figure(
            f"layer {n} kB",
            1,
            col(f"{layer}.received_kb"),
            f"payload of layer {n} that was complete when the last ADU was made, in 1000 bytes",
        )
        yield Figure(
            f"layer {n}",
            2,
            col(f"{layer}.on_time").cast(pl.Float64),
            f"ADUs of layer {n} that were complete by their deadline",
        )


def spread(name, column, meaning):
    """Mean and 90 % interval of all values of a run."""
    yield Figure(f"{name} ms", 1, col(f"carried.{column}.mean"), f"{meaning}: mean")
    yield Figure(f"{name} p5", 1, col(f"carried.{column}.low"), f"{meaning}: 5th percentile")
    yield Figure(f"{name} p95", 1, col(f"carried.{column}.high"), f"{meaning}: 95th percentile")


FLOW = "transfer.flows.1"

# fmt: off
FIGURES = {
    figure.label: figure
    for figure in [
        Figure("ADUs %", 2, on_time("adus"), "ADUs (audio packets, video frames, data objects) of which every packet arrived by its deadline, of all that were offered", "adus"),
        Figure("audio %", 2, on_time("audio"), "audio packets that arrived by their deadline", "audio"),
        Figure("frames %", 2, on_time("frames"), "video frames of which every packet arrived by its deadline", "frames"),
        Figure("video %", 2, on_time("video"), "video packets that arrived by their deadline, whatever became of the rest of their frame"),
        Figure("objects %", 2, on_time("objects"), "data objects of which every packet arrived by its deadline", "objects"),
        Figure("audio of bound %", 1, percent(col("audio.on_time"), bound("audio")), "audio on time in percent of the clairvoyant bound: what a schedule that knows the future could do"),
        Figure("frames of bound %", 1, percent(col("frames.on_time"), bound("video")), "complete frames on time in percent of the bound when as much audio as possible is on time; more than 100 for a queue that pays for frames with audio"),
        Figure("ADUs of bound %", 1, percent(col("adus.on_time"), bound("audio", "video", "data")), "complete ADUs of all classes on time in percent of what the bound has of all classes together (audio first)"),
        Figure("objects of bound %", 1, percent(col("objects.on_time"), bound("data")), "complete data objects on time in percent of the bound when as many audio packets and frames as possible are on time"),
        Figure("false drops %", 2, percent(FALSE_DROPS, col("adus.offered")), "ADUs dropped, in part or whole, although there was room for them beside all that arrived on time, of all that were offered", "adus"),
        Figure("decoded %", 1, percent(col("picture.decoded"), col("picture.pictures")), "pictures for which the decoder returned one, of all of the source"),
        Figure("intact %", 1, percent(col("picture.intact"), col("picture.pictures")), "pictures that are, pixel for pixel, what an undisturbed player shows"),
        Figure("intact bound %", 1, percent(col("picture.intact_bound"), col("picture.pictures")), "the most pictures that could have been intact on this link, video after audio: no schedule has more frames on time of which all that they refer to are, too"),
        Figure("intact of bound %", 1, percent(col("picture.intact"), col("picture.intact_bound")), "intact pictures in percent of that bound"),
        Figure("wasted %", 1, percent(col("picture.wasted_bytes"), col("picture.sent_bytes")), "bytes of video that was sent for frames without an intact picture, of all bytes of video that were sent: late ones, or frames of which a packet or a reference is missing"),
        Figure("longest freeze ms", 0, col("picture.longest_freeze_ms"), "longest time without a new intact picture, beyond one picture's own"),
        Figure("SSIM", 4, col("picture.ssim"), "structural similarity of what is shown to the source, mean of all pictures; a missing one is the last before it"),
        Figure("undisturbed", 4, col("picture.ssim_undisturbed"), "SSIM of an undisturbed player: what coding alone costs"),
        Figure("useful kbit/s", 0, col("goodput_kbit"), "bytes of the ADUs that were complete on time, per second of the time that was judged"),
        Figure("stale", 1, col("stale_arrivals").cast(pl.Float64), "packets that arrived after their deadline"),
        Figure("stale kB", 1, col("stale_bytes") / 1e3, "bytes of the packets that arrived after their deadline, in 1000"),
        Figure("stale %", 2, percent(col("stale_arrivals"), col("sent")), "packets that arrived after their deadline, of all that were offered"),
        Figure("left stale", 1, col("last_hop.left_stale").cast(pl.Float64), "packets that arrived stale and were so when they left the queue of the last hop"),
        Figure("on the line", 1, col("last_hop.on_line").cast(pl.Float64), "packets that arrived stale but left the queue of the last hop in time: the line held them"),
        Figure("doubled %", 2, percent(col("duplicates"), col("sent") - col("dropped") + col("duplicates")), "segments of a download that arrived again, of all that arrived"),
        Figure("download s", 1, col("download_s"), "how long a download took"),
        Figure("late ms", 1, col("latest_ms"), "longest time by which a packet missed its deadline"),
        Figure("audio p50 ms", 1, delay("audio", "p50"), "delay from creation to arrival, of the audio packets that arrived: median"),
        Figure("audio p95", 1, delay("audio", "p95"), "the same, 95th percentile"),
        Figure("audio p99", 1, delay("audio", "p99"), "the same, 99th percentile"),
        Figure("video p50 ms", 1, delay("video", "p50"), "delay of the video packets that arrived: median"),
        Figure("video p95", 1, delay("video", "p95"), "the same, 95th percentile"),
        Figure("video p99", 1, delay("video", "p99"), "the same, 99th percentile"),
        Figure("data p99 ms", 1, delay("data", "p99"), "delay of the data packets that arrived: 99th percentile"),
        Figure("Jain", 3, col("fairness"), "Jain's index between streams (clients, sessions), of the useful part of what each offered; 1 = all alike"),
        Figure("worst stream %", 1, col("worst_stream"), "ADUs on time of the stream that fared worst"),
        Figure("TCP's share", 3, col("tcp_share"), "part of all bytes on the wire delivered that was that of the competing TCP flows; an even share of n flows is n / (n + 1)"),
        Figure("audio received %", 2, percent(col("audio_received"), col("audio.offered")), "audio packets that arrived at all, also late"),
        Figure("video received %", 2, percent(col("video_received"), col("video.offered")), "the same of video packets"),
        Figure("sent kbit/s", 1, col("tfrc.sent_kbit"), "bytes on the wire that left the sending host under TFRC, per second of the time that was judged"),
        Figure("received kbit/s", 1, RECEIVED, "bytes on the wire that arrived, also late, per second of the time that was judged"),
        Figure("TCP kbit/s", 1, pl.when(col("tcp_share") < 1).then(RECEIVED * col("tcp_share") / (1 - col("tcp_share"))), "bytes on the wire that the competing TCP flows delivered together in the same time"),
        Figure("lost %", 2, percent(col("tfrc.lost"), col("tfrc.left")), "packets that left the sending host under TFRC and never arrived, of those that left"),
        Figure("headers %", 2, percent(col("tfrc.headers"), col("tfrc.left")), "packets of which the last hop forwarded the header alone, of those that left the sending host under TFRC"),
        Figure("counted lost", 1, col("tfrc.counted").cast(pl.Float64), "packets of the whole run that TFRC took for lost in the network"),
        Figure("RTT ms", 1, col("tfrc.rtt_ms"), "mean of TFRC's smoothed round trip"),
        Figure("tail drops", 1, col("tail_drops").cast(pl.Float64), "packets that found the queue full, where it is the sending program's own (`pfifo N` below TFRC and DCCP)"),
        Figure("sender late ms", 2, col("sender_late_ms"), "longest time by which the sender itself was late: no queue's doing"),
        Figure("payload Kbit/s", 2, col("carried.received_kbit") * 1000 / 1024, "payload that reached the receiving program while ADUs were made, in 1024 bit/s"),
        Figure("unsent kB", 1, col("carried.unsent_kb.mean"), "bytes that TCP held unsent, in 1000: mean of a look each 10 ms"),
        Figure("unsent p95", 1, col("carried.unsent_kb.high"), "the same, 95th percentile"),
        Figure("given up %", 1, percent(col("carried.given_up"), col("sent")), "ADUs that the sending program gave up, of all"),
        Figure("resets %", 2, percent(col("carried.resets"), col("sent")), "QUIC streams that were reset, of all ADUs"),
        Figure("arrived on time %", 2, percent(col("sent") - col("dropped") - col("stale_arrivals"), col("sent") - col("dropped")), "packets on time, of those that arrived"),
        Figure("goodput kB/s", 1, col(f"{FLOW}.goodput_kb"), "payload of the flow under test that arrived, in 1000 bytes a second, from its SYN to its end"),
        Figure("success %", 1, percent(col(f"{FLOW}.reads.on_time"), col(f"{FLOW}.reads.offered")), "reads at an interval that found all they wanted (1 Mbit/s)"),
        Figure("sent again", 1, col(f"{FLOW}.retransmitted").cast(pl.Float64), "segments that the flow under test sent again"),
        Figure("timeouts", 1, col(f"{FLOW}.timeouts").cast(pl.Float64), "its retransmission timeouts"),
        Figure("level", 1, col(f"{FLOW}.cwnd.mean") / 2, "half its congestion window in segments, mean of a look each 10 ms: the wave level of TCP-Real"),
        Figure("kB a round trip", 2, col(f"{FLOW}.sent_kb") * 2 * col("owd_ms") / 1000, "payload that it sent, also again, in 1000 bytes a round trip of the idle path"),
        Figure("silent ms", 0, col(f"{FLOW}.silent_ms.mean"), "from the end of a phase of loss until its next segment arrives: mean of the phases"),
        Figure("back RTTs", 1, col(f"{FLOW}.back_rtts.mean"), "from then until as much arrives in a round trip as before the phase, in round trips: mean of the phases"),
        Figure("never back", 1, col(f"{FLOW}.lost_again").cast(pl.Float64), "phases of loss after which it did not get there before the next one"),
        Figure("share", 2, col("transfer.share"), "goodput of the flow under test, of the mean of all bulk flows: 1 = a fair share"),
        Figure("Jain of flows", 3, col("transfer.jain"), "Jain's index of the goodputs of all bulk flows; 1 = all alike"),
        Figure("cancelled", 1, col("transfer.real.cancelled").cast(pl.Float64), "reductions of a window that TCP-Real cancelled"),
        Figure("left to Reno", 1, col("transfer.real.reduced").cast(pl.Float64), "reductions that its guards left to Reno"),
        *layers(),
        *spread("latency", "latency_ms", "from an ADU's creation to the acknowledgement of all of it"),
        *spread("round trip", "rtt_ms", "smoothed round trip as the sender has it"),
        *spread("dispersion", "dispersion_ms", "from one arrival of a stream to the next one"),
        Figure("sent stale", 1, col("counters.sent_stale").cast(pl.Float64), "packets that bestby says it sent although they were stale"),
    ]
}
# fmt: on

# Shown where no column is named.
USUAL = ["audio %", "frames %", "frames of bound %", "objects %", "false drops %", "stale"]
