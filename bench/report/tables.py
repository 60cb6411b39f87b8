"""Tables as Markdown: for a terminal, for `docs/`, and for the page."""

from report import compare
from report.figures import FIGURES, USUAL
from report.series import Refused
from report.statistics import estimate, paired

NONE = "–"


def markdown(head, rows):
    """A table without alignment, a list of lines."""
    line = lambda cells: "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    return [line(head), "|" + "---|" * len(head), *map(line, rows)]


def figures(series, names):
    """Those of `names` that a run has, each with whether its interval is asked for (`±` behind it)."""
    chosen = []
    for name in [name.strip() for name in names.split(",")] if names else USUAL:
        label = name.rstrip(" ±")
        if label not in FIGURES:
            raise Refused(f"no column is named `{label}`; the columns are: {', '.join(FIGURES)}")
        chosen.append((FIGURES[label], name.endswith("±")))
    return [(figure, interval) for figure, interval in chosen if series.shown(figure.label)]


def text(figure, cell, interval=True, brief=False):
    """`54.50 ± 1.25`; brief `54.5`, and thousands without digits behind the point."""
    found = cell and estimate(cell.values(figure.label))
    if found is None:
        return NONE
    digits = figure.digits
    if brief and not interval:
        digits = 0 if abs(found.mean) >= 1000 else figure.brief
    half = f" ± {found.half:.{digits}f}" if interval and found.half is not None else ""
    return f"{found.mean:.{digits}f}{half}"


def by_place(series, names, words=text, queues=None):
    """A table for each place: a row for each queue, a column for each figure."""
    chosen = [figure for figure, _ in figures(series, names)]
    lines = []
    for place in series.places:
        cells = [cell for queue in queues or series.queues if (cell := series.cells.get((place, queue)))]
        rows = [[cell.queue, *(words(figure, cell) for figure in chosen)] for cell in cells]
        lines += [f"{series.at(place)}:", ""] if series.axes else []
        lines += [*markdown(["queue", *(figure.label for figure in chosen)], rows), ""]
    return lines


def across(series, names, axis):
    """One table with the values of `axis` (or the queues, `queue`) as its columns; several figures in a cell."""
    chosen = figures(series, names)

    def words(place, queue):
        if (cell := series.cell(place, queue)) is None:
            return NONE
        return ", ".join(text(figure, cell, interval, brief=True) for figure, interval in chosen)

    return laid_out(series, series.queues, axis, words)


def best(series, axis):
    """The same of bestby's queue: audio, frames (in % of the bound); then the best other queue."""

    def words(place, queue):
        if (own := series.cell(place, queue)) is None:
            return NONE
        of = estimate(own.values("frames of bound %"))
        half = f" ± {of.half:.0f}" if of and of.half is not None else ""
        peer = compare.best_peer(series, place)
        bound = f"{of.mean:.0f}{half}" if of else NONE
        return f"{both(own)} ({bound})" + (f"; {both(peer)} {peer.queue}" if peer else "")

    return laid_out(series, [series.ours], axis, words)


def both(cell):
    return ", ".join(text(FIGURES[label], cell, interval=False, brief=True) for label in ("audio %", "frames %"))


def laid_out(series, queues, across, words):
    """The rows are all other axes of several values, and the queue where there are several."""
    axes = {axis.name: at for at, axis in enumerate(series.axes)}
    if across not in ("queue", *axes):
        raise Refused(f"{series.name} has no axis `{across}`: it has {', '.join(['queue', *axes])}")
    shown = [[v for v in axis.values if any(p[at] == v for p in series.places)] for at, axis in enumerate(series.axes)]
    rows = [at for name, at in axes.items() if name != across and len(shown[at]) > 1]
    named = across != "queue" and (len(queues) > 1 or not rows)
    head = [series.axes[at].head() for at in rows] + ["queue"] * named
    if across == "queue":
        head += queues
    else:
        at = axes[across]
        head += [series.axes[at].at(value) for value in shown[at]]
    body, firsts = [], {}
    for place in series.places:
        firsts.setdefault(tuple(place[at] for at in rows), place)
    for row, place in firsts.items():
        if across == "queue":
            body.append([*row, *(words(place, queue) for queue in queues)])
            continue
        moved = [(*place[:at], value, *place[at + 1 :]) for value in shown[at]]
        for queue in queues:
            cells = [words(place, queue) for place in moved]
            if any(cell != NONE for cell in cells):
                body.append([*row, *[queue] * named, *cells])
    return markdown(head, body)


def against(series, names, queue):
    """A table for each place: what each queue has more than `queue`, by the paired t-test."""
    if queue not in series.queues:
        raise Refused(f"{series.name} has no queue `{queue}`: it has {', '.join(series.queues)}")

    def more(figure, cell):
        """In the repetitions that both have: `+2.30 ± 0.80`."""
        if (other := series.cell(cell.place, queue)) is None:
            return NONE
        pairs = compare.pairs(cell, other, figure.label)
        if test := paired(pairs, compare.step(cell, figure.label)):
            return f"{test.mean:+.{figure.digits}f} ± {test.half:.{figure.digits}f}"
        return f"{pairs[0][0] - pairs[0][1]:+.{figure.digits}f}" if pairs else NONE

    return by_place(series, names, more, [name for name in series.queues if name != queue])
