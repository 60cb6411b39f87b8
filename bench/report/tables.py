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


def figures(names):
    """The figures of `names`, each with whether its interval is asked for (`±` behind it)."""
    wanted = [name.strip() for name in names.split(",")] if names else USUAL
    chosen = []
    for name in wanted:
        label = name.rstrip(" ±")
        if label not in FIGURES:
            raise Refused(f"no column is named `{label}`; the columns are: {', '.join(FIGURES)}")
        chosen.append((FIGURES[label], name.endswith("±")))
    return chosen


def text(figure, cell, interval=True, brief=False):
    """`54.50 ± 1.25`; brief `54.5`, and thousands without digits behind the point."""
    found = cell and estimate(cell.values(figure.label))
    if found is None:
        return NONE
    digits = figure.brief if brief and not interval else figure.digits
    if brief and not interval and abs(found.mean) >= 1000:
        digits = 0
    if interval and found.half is not None:
        return f"{found.mean:.{digits}f} ± {found.half:.{digits}f}"
    return f"{found.mean:.{digits}f}"


def by_place(series, names):
    """A table for each place: a row for each queue, a column for each figure."""
    chosen = [figure for figure, _ in figures(names) if series.shown(figure.label)]
    lines = []
    for place in series.places:
        cells = [cell for queue in series.queues if (cell := series.cells.get((place, queue)))]
        if series.axes:
            lines += [f"{series.at(place)}:", ""]
        rows = [[cell.queue, *(text(figure, cell) for figure in chosen)] for cell in cells]
        lines += [*markdown(["queue", *(figure.label for figure in chosen)], rows), ""]
    return lines


def across(series, names, axis):
    """One table with the values of `axis` (or the queues, `queue`) as its columns; several figures in a cell."""
    chosen = [(figure, interval) for figure, interval in figures(names) if series.shown(figure.label)]

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
        bound = estimate(own.values("frames of bound %"))
        bound = (
            NONE if bound is None else f"{bound.mean:.0f}" + (f" ± {bound.half:.0f}" if bound.half is not None else "")
        )
        peer = compare.best_peer(series, place)
        return f"{both(own)} ({bound})" + (f"; {both(peer)} {peer.queue}" if peer else "")

    return laid_out(series, [series.ours], axis, words)


def both(cell):
    return ", ".join(text(FIGURES[label], cell, interval=False, brief=True) for label in ("audio %", "frames %"))


def laid_out(series, queues, across, words):
    """The rows are all other axes of several values, and the queue where there are several."""
    names = [axis.name for axis in series.axes]
    if across not in ("queue", *names):
        raise Refused(f"{series.name} has no axis `{across}`: it has {', '.join(['queue', *names])}")
    shown = {
        axis.name: [v for v in axis.values if any(p[at] == v for p in series.places)]
        for at, axis in enumerate(series.axes)
    }
    rows = [(at, axis) for at, axis in enumerate(series.axes) if axis.name != across and len(shown[axis.name]) > 1]
    named = across != "queue" and (len(queues) > 1 or not rows)
    head = [axis.head() for _, axis in rows] + ["queue"] * named
    if across == "queue":
        head += queues
    else:
        at = names.index(across)
        head += [series.axes[at].at(value) for value in shown[across]]
    body, seen = [], set()
    for place in series.places:
        row = [place[at] for at, _ in rows]
        if tuple(row) in seen:
            continue
        seen.add(tuple(row))
        if across == "queue":
            body.append(row + [words(place, queue) for queue in queues])
            continue
        moved = [(*place[:at], value, *place[at + 1 :]) for value in shown[across]]
        for queue in queues:
            cells = [words(place, queue) for place in moved]
            if any(cell != NONE for cell in cells):
                body.append(row + [queue] * named + cells)
    return markdown(head, body)


def more(first, second, label):
    """What one cell has more than another in the repetitions that both have: `+2.30 ± 0.80`."""
    pairs = compare.pairs(first, second, label)
    digits = FIGURES[label].digits
    test = paired(pairs, compare.step(first, label))
    if test is None:
        return f"{pairs[0][0] - pairs[0][1]:+.{digits}f}" if pairs else NONE
    return f"{test.mean:+.{digits}f} ± {test.half:.{digits}f}"


def against(series, names, queue):
    """A table for each place: what each queue has more than `queue`, by the paired t-test."""
    if queue not in series.queues:
        raise Refused(f"{series.name} has no queue `{queue}`: it has {', '.join(series.queues)}")
    labels = [figure.label for figure, _ in figures(names) if series.shown(figure.label)]
    lines = []
    for place in series.places:
        other = series.cell(place, queue)
        cells = [cell for name in series.queues if name != queue and (cell := series.cells.get((place, name)))]
        rows = [[cell.queue, *(more(cell, other, label) for label in labels)] for cell in cells if other]
        lines += [*([f"{series.at(place)}:", ""] if series.axes else []), *markdown(["queue", *labels], rows), ""]
    return lines
