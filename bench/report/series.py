"""What one `runs.parquet` holds: the runs of a scenario, and who made them.

`bestby-lab run` writes it. A row is a run; a column is one figure of it (`figures.py` says
what is made of them). The file's metadata has, as JSON below `series`, the scenario's title,
axes and queues, the file that was run, and kernel, commit, machine, seed and commands.
"""

import json
import sys
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import polars as pl

from report.figures import FIGURES

# Axes that change what bestby is told and nothing else: other queues are told nothing and
# run once, with the value 0.
TOLD = ("rtt_error", "rate_error")
OURS = "bestby qdisc triage"


class Refused(Exception):
    """What was asked for cannot be shown; the text says why and what can."""


@dataclass(frozen=True)
class Axis:
    """A swept axis; its values are text, in the order of the scenario's file."""

    name: str
    unit: str
    values: tuple[str, ...]

    def head(self):
        """`owd, ms`, the head of a column."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    def at(self, value):
        """`owd 75 ms`, a place on it."""
        return f"{self.name} {value} {self.unit}".rstrip()


@dataclass
class Cell:
    """One queue at one place, and the figures of its runs."""

    place: tuple[str, ...]
    queue: str
    id: str
    runs: dict[int, dict] = field(default_factory=dict)

    def values(self, label):
        """A figure of each run that has it."""
        return [run[label] for run in self.runs.values() if run[label] is not None]


@dataclass
class Series:
    """All runs of one scenario."""

    said: dict
    runs: pl.DataFrame

    @classmethod
    def read(cls, file):
        """Reads a file that `bestby-lab run` wrote."""
        try:
            said = json.loads(pl.read_parquet_metadata(file)["series"])
            runs = pl.read_parquet(file)
        except (OSError, KeyError, ValueError, pl.exceptions.PolarsError) as error:
            raise Refused(f"{file} is not what `bestby-lab run` writes: {error}") from error
        if not len(runs):
            why = "; ".join(absent["reason"] for absent in said["absent"]) or "all of them failed"
            raise Refused(f"{file} holds no run: {why}")
        return cls(said, runs)

    @classmethod
    def read_all(cls, place):
        """Those of a file, of `DIR/SCENARIO/runs.parquet`, or of all files in a directory."""
        place = Path(place)
        files = [place] if place.is_file() else sorted([*place.glob("*/runs.parquet"), *place.glob("*.parquet")])
        if not files:
            raise Refused(f"no runs are in {place}: give what `bestby-lab run` was given as --out, or a .parquet file")
        found, refused = [], []
        for file in files:
            try:
                found.append(cls.read(file))
            except Refused as error:
                refused.append(str(error))
        if not found:
            raise Refused("; ".join(refused))
        for words in refused:
            print(f"report: {words}", file=sys.stderr)
        return found

    @property
    def name(self):
        return self.said["name"]

    @cached_property
    def axes(self):
        return [Axis(axis["axis"], axis["unit"], tuple(axis["values"])) for axis in self.said["axes"]]

    @cached_property
    def cells(self):
        """By place and queue, in the order of the scenario's file."""
        runs = self.runs.with_columns(judged_s=pl.lit(self.said["seconds"] - self.said["discard_first"]))
        wanted = {figure.label: figure.of for figure in FIGURES.values()}
        wanted |= {f"{f.label} of": pl.col(f"{f.whole}.offered") for f in FIGURES.values() if f.whole}
        wanted["all audio"] = pl.col("bound.audio.adus") == pl.col("bound.audio.adus_offered")
        has = set(runs.columns)
        figures = [
            (of if set(of.meta.root_names()) <= has else pl.lit(None)).alias(label) for label, of in wanted.items()
        ]
        places = [f"axis.{axis.name}" for axis in self.axes]
        cells = {}
        for run in runs.select("cell", "queue", "run", *places, *figures).iter_rows(named=True):
            place = tuple(run[name] for name in places)
            cell = cells.setdefault((place, run["queue"]), Cell(place, run["queue"], run["cell"]))
            cell.runs[run["run"]] = run
        return cells

    @cached_property
    def queues(self):
        """Queues that have a run, in the scenario's order."""
        run = {queue for _, queue in self.cells}
        return [queue for queue in self.said["queues"] if queue in run]

    @cached_property
    def places(self):
        """All places that were run, in the order of the axes' values."""
        order = [{value: number for number, value in enumerate(axis.values)} for axis in self.axes]
        seen = dict.fromkeys(place for place, _ in self.cells)
        return sorted(seen, key=lambda place: [numbers[value] for numbers, value in zip(order, place)])

    @cached_property
    def ours(self):
        """The queue that speaks for bestby; None where it has none."""
        for words in (OURS, "bestby"):
            for queue in self.queues:
                if queue.startswith(words):
                    return queue
        return None

    def cell(self, place, queue):
        """The cell; of a queue that is told nothing the one it has for all errors."""
        untold = tuple("0" if axis.name in TOLD else value for axis, value in zip(self.axes, place))
        return self.cells.get((place, queue)) or self.cells.get((untold, queue))

    def only(self, words):
        """The cells whose id or queue has one of the words in it; all of them without words."""
        if not words:
            return self
        wanted = pl.any_horizontal(
            [pl.col(column).str.contains(word, literal=True) for word in words for column in ("cell", "queue")]
        )
        some = self.runs.filter(wanted)
        if not len(some):
            raise Refused(f"no cell of {self.name} has {' or '.join(words)} in its place or queue")
        return Series(self.said, some)

    def at(self, place):
        """`load 2, owd 75 ms`; the scenario's name where there is one place only."""
        return ", ".join(axis.at(value) for axis, value in zip(self.axes, place)) or self.name

    def shown(self, label):
        """Whether any run has the figure."""
        return any(cell.values(label) for cell in self.cells.values())

    def made_by(self):
        """Where the figures come from, but for the commands."""
        said, plural = self.said, "" if self.said["repetitions"] == 1 else "s"
        return (
            f"Linux {said['kernel']}, {said['machine']}, commit {said['commit']}, seed {said['seed']}, "
            f"{said['repetitions']} run{plural} of {said['seconds']:g} s for each cell, "
            f"the first {said['discard_first']:g} s of each not judged"
        )

    def warnings(self):
        """What a reader has to know before the figures."""
        if missing := self.said["missing"]:
            yield f"Missing: {missing} runs; this series is not complete."
        spoilt = self.runs.filter(pl.col("would_block") + pl.col("refused") > 0)
        if len(spoilt):
            runs = ", ".join(f"{run['cell']} run {run['run']}" for run in spoilt.head(5).iter_rows(named=True))
            yield (
                f"In {len(spoilt)} runs the sender's own socket refused packets: they have measured the socket "
                f"and not the queue ({runs}{', ...' if len(spoilt) > 5 else ''})."
            )
        for absent in self.said["absent"]:
            yield f"Not run: {absent['queue']}: {absent['reason']}"
