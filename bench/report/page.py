"""The page: everything of a results' directory in one file that needs nothing else, no script and no network."""

from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from report import compare, plots, tables
from report.figures import FIGURES
from report.series import Series


def write(directory):
    """Writes `report.html`, whose path it returns, and `SCENARIO/gain.svg`."""
    directory = Path(directory)
    all_series = Series.read_all(directory)
    for series in all_series:
        if picture := plots.gain(series):
            (directory / series.name).mkdir(exist_ok=True)
            (directory / series.name / "gain.svg").write_text(picture)
    file = directory / "report.html"
    file.write_text(render(all_series))
    return file


def render(all_series):
    """The page's text."""
    jinja = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    sections = [Section(series) for series in all_series]
    lost = [row for section in sections for row in lost_rows(section.found)]
    short = [row for series in all_series for row in short_rows(series)]
    return jinja.get_template("page.html").render(
        sections=sections, lost=(LOST, lost), short=(SHORT, short), figures=FIGURES.values(), compare=compare
    )


class Section:
    """One scenario on the page."""

    def __init__(self, series):
        self.series = series
        self.found = compare.compare(series) if series.ours else []
        verdicts = list(compare.verdicts(self.found).values())
        self.counts = {verdict: verdicts.count(verdict) for verdict in ("leads", "equal", "behind")}
        self.ahead = compare.ahead(series, self.found) if self.found else "No queue of bestby was run beside another."
        self.pictures = [(figure, plots.panels(series, figure.label)) for figure in plots.drawn(series)]

    def cells(self):
        """All cells as a table."""
        series = self.series
        labels = [label for label in FIGURES if series.shown(label)]
        head = [axis.head() for axis in series.axes] + ["queue", "runs", *labels]
        cells = [series.cells.get((place, queue)) for place in series.places for queue in series.queues]
        rows = [
            [*cell.place, cell.queue, str(len(cell.runs)), *(tables.text(FIGURES[label], cell) for label in labels)]
            for cell in cells
            if cell
        ]
        return head, rows


LOST = ["scenario", "cell", "better queue", "its audio %", "ours", "its frames %", "ours"]
LOST += ["decides", "difference", "p", "among all", ""]
SHORT = ["scenario", "cell", "audio %", "frames of bound %"]


def two(value):
    return tables.NONE if value is None else f"{value:.2f}"


def probability(p):
    return tables.NONE if p is None else "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def lost_rows(found):
    """Comparisons in which the other queue is better."""
    for c in found:
        if c.other_is_better:
            test, audio = c.decides.test, c.audio
            yield [
                c.series.name, c.series.at(c.place), c.peer,
                two(audio and audio.other), two(audio and audio.own), two(c.frames.other), two(c.frames.own),
                c.decides.label, f"{-c.decides.more:.2f}" + (f" ± {test.half:.2f}" if test else ""),
                probability(test and test.p), probability(c.decides.among_all), c.doubt(),
            ]  # fmt: skip


def short_rows(series):
    """Cells in which more was possible."""
    for place, audio, frames in compare.short(series):
        yield [series.name, series.at(place), two(audio), two(frames)]
