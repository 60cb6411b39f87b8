"""Where bestby leads and where another queue is better: one rule for page and terminal.

Audio is what a call is worth: more of it on time is better, whatever becomes of the video. So audio
decides where it differs by more than chance and by more than EQUAL_AUDIO; else complete frames do
(of traffic without video complete ADUs), by a test of their own. With one run nothing can be tested:
means decide, and it is said.

Verdicts are of single tests, because correcting them would hide what is against bestby: a lead must
be one over every other queue, while one queue that is better is enough to be behind. How many tests
there are, and which differences are certain among all of them (Holm), is said with every list.
"""

from dataclasses import dataclass
from itertools import groupby

from report.figures import FIGURES
from report.series import Series
from report.statistics import SIGNIFICANCE, Difference, holm, mean, paired

EQUAL_AUDIO = 0.1  # points of audio up to which two queues have equally much: what nobody hears
AUDIO_WANTED = 99.9  # % of the audio that must be on time where the bound has all of it
FRAMES_WANTED = 95.0  # % of the bound's frames


def pairs(first, second, label):
    """A figure of each repetition that both cells have."""
    both = [(run[label], second.runs[number][label]) for number, run in first.runs.items() if number in second.runs]
    return [pair for pair in both if None not in pair]


def step(cell, label):
    """What one ADU is of 100 %; of a figure that counts none its last digit."""
    figure = FIGURES[label]
    whole = figure.whole and next(iter(cell.runs.values()))[f"{label} of"]
    return 100 / whole if whole else 0.1**figure.digits


@dataclass
class Compared:
    """bestby's queue and another in one figure: the means, and the test of their difference."""

    label: str
    own: float
    other: float
    test: Difference | None
    among_all: float | None = None  # p among all tests of the series (Holm)

    @classmethod
    def of(cls, own, other, label):
        found = pairs(own, other, label)
        if not found:
            return None
        first, second = zip(*found)
        return cls(label, mean(first), mean(second), paired(found, step(own, label)))

    @property
    def more(self):
        return self.own - self.other

    @property
    def by_chance(self):
        return self.test is not None and self.test.p >= SIGNIFICANCE

    def doubt(self):
        if self.test is None:
            return "too few runs to tell from chance"
        if self.by_chance:
            return "may be chance"
        return "" if self.among_all < SIGNIFICANCE else "may be chance among so many tests"


@dataclass
class Comparison:
    """bestby's queue beside one other at one place."""

    series: Series
    place: tuple
    peer: str
    audio: Compared | None
    frames: Compared

    @property
    def decides(self):
        audio = self.audio
        if audio and abs(audio.more) > EQUAL_AUDIO and not audio.by_chance:
            return audio
        return self.frames

    @property
    def verdict(self):
        """`leads`, `equal` (or chance), `behind`: of bestby."""
        if self.decides.more == 0 or self.decides.by_chance:
            return "equal"
        return "leads" if self.decides.more > 0 else "behind"

    @property
    def less_audio_by_chance(self):
        return bool(self.audio) and self.audio.more < -EQUAL_AUDIO and self.audio.by_chance

    @property
    def other_is_better(self):
        """Whether the other's mean is better in what decides, or in audio, be it by chance."""
        return self.decides.more < 0 or self.less_audio_by_chance

    def doubt(self):
        words = ["its audio may be chance"] * self.less_audio_by_chance + [self.decides.doubt()]
        return "; ".join(filter(None, words))


def compare(series):
    """bestby's queue beside every other, at each place where both have a figure in common."""
    found = []
    for place in series.places:
        own = series.cells.get((place, series.ours))
        for peer in series.queues:
            other = series.cell(place, peer)
            if own is None or other is None or peer == series.ours:
                continue
            frames = Compared.of(own, other, "frames %") or Compared.of(own, other, "ADUs %")
            if frames:
                found.append(Comparison(series, place, peer, Compared.of(own, other, "audio %"), frames))
    tested = [c for comparison in found for c in (comparison.audio, comparison.frames) if c and c.test]
    for compared, p in zip(tested, holm([compared.test.p for compared in tested])):
        compared.among_all = p
    return found


def verdicts(found):
    """By place: behind if any other queue is better, leading if none is as good."""
    worst = ["behind", "equal", "leads"]
    by_place = groupby(found, key=lambda comparison: comparison.place)
    return {place: min((c.verdict for c in peers), key=worst.index) for place, peers in by_place}


def ahead(series, found):
    """How many cells other queues lead, and how much of that chance can do, in words."""
    cells = lambda of: len({comparison.place for comparison in found if of(comparison)})
    tests = sum(c is not None and c.test is not None for x in found for c in (x.audio, x.frames))
    behind = lambda c: c.verdict == "behind"
    among_all = lambda c: behind(c) and c.decides.test and c.decides.among_all < SIGNIFICANCE
    words = (
        f"In {cells(lambda c: c.other_is_better)} of {cells(lambda c: True)} cells another queue's mean is better "
        f"than that of {series.ours}: in audio on time where that differs by more than {EQUAL_AUDIO} points and by "
        "more than chance, else in complete frames."
    )
    if not tests:
        return words + " With one run of each nothing can be told from chance."
    return words + (
        f" In {cells(lambda c: behind(c) and c.decides.test)} of them by more than chance in a test of its own "
        f"(paired t-test, p < 5 %), in {cells(among_all)} also among all {tests} tests (Holm). If no two queues "
        f"differed, up to {tests * SIGNIFICANCE / 2:.1f} of so many tests would still be against {series.ours}."
    )


def best_peer(series, place):
    """Of the queues that are not bestby's, and of which none has more than EQUAL_AUDIO more audio, the
    one with most complete frames; of equals the first."""
    of = lambda cell, label: mean(cell.values(label)) if cell.values(label) else 0.0
    peers = [series.cell(place, queue) for queue in series.queues if not queue.startswith("bestby")]
    peers = [cell for cell in peers if cell]
    most = max((of(cell, "audio %") for cell in peers), default=0.0)
    enough = [cell for cell in peers if of(cell, "audio %") >= most - EQUAL_AUDIO]
    return max(enough, key=lambda cell: of(cell, "frames %"), default=None)


def short(series):
    """Places at which bestby's queue has less than it should: audio % and frames of bound %, None where
    it has enough."""
    for place in series.places:
        if cell := series.cells.get((place, series.ours)):
            all_audio = all(run["all audio"] for run in cell.runs.values())
            audio = below(cell, "audio %", AUDIO_WANTED) if all_audio else None
            frames = below(cell, "frames of bound %", FRAMES_WANTED)
            if audio is not None or frames is not None:
                yield place, audio, frames


def below(cell, label, wanted):
    """The mean where it is less than what is wanted."""
    found = cell.values(label)
    return mean(found) if found and mean(found) < wanted else None
