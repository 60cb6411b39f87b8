"""Pictures as SVG: the figures over an axis, and what each queue delivers at the highest load."""

import io

from matplotlib import rcParams
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from report.figures import FIGURES
from report.statistics import estimate, mean

# fmt: off
rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "bestby", "font.size": 9,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": "#dde1e5",
})
# fmt: on
COLOURS = ["#0072b2", "#d55e00", "#008561", "#aa4499", "#8c6d00", "#332288", "#882255", "#777777"]
SHAPES = ["o", "s", "^", "D", "v", "x"]
# Axes that are drawn from left to right, the first that sweeps; others make panels.
ACROSS = ["load", "rate", "rate_error", "rtt_error", "owd"]


def drawn(series):
    """The figures that have a picture."""
    return [FIGURES[label] for label in ("ADUs %", "audio %", "frames %", "frames of bound %") if series.shown(label)]


def svg(figure):
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None}, bbox_inches="tight")
    return "".join(text.getvalue().partition("<svg")[1:])


def panels(series, label):
    """A panel for each combination of the axes that are not drawn across, in one picture."""
    names = [axis.name for axis in series.axes]
    at = next((names.index(name) for name in ACROSS if name in names), 0)
    values = series.axes[at].values if names else ("",)
    rest = lambda place: place[:at] + place[at + 1 :]
    groups = list(dict.fromkeys(map(rest, series.places)))
    columns = min(len(groups), 3)
    rows = -(-len(groups) // columns)
    figure = Figure(figsize=(4.2 * columns, 3 * rows))
    axes = figure.subplots(rows, columns, squeeze=False, sharey=True)
    ours = [series.ours] if series.ours else []
    queues = [queue for queue in series.queues if queue not in ours] + ours
    for panel in axes.flat[len(groups) :]:
        panel.axis("off")
    for panel, group in zip(axes.flat, groups):
        for number, queue in enumerate(queues):
            # bestby's is drawn last, on top, and thicker.
            style = 0 if queue == series.ours else 1 + number
            places = [(*group[:at], value, *group[at:]) if names else () for value in values]
            found = [(cell := series.cell(place, queue)) and estimate(cell.values(label)) for place in places]
            known = [(x, e.mean, e.half or 0) for x, e in enumerate(found) if e]
            if known:
                style = dict(color=COLOURS[style % 8], marker=SHAPES[style % 6], markersize=4, capsize=2)
                panel.errorbar(*zip(*known), label=queue, linewidth=1 + 1.2 * (queue == series.ours), **style)
        others = [axis for axis in series.axes if axis.name != names[at]] if names else []
        panel.set_title(", ".join(axis.at(value) for axis, value in zip(others, group)), fontsize=9)
        panel.set_xticks(range(len(values)), values)
        panel.set_xlabel(series.axes[at].head() if names else "")
        panel.set_ylim(bottom=0)
    keys = dict(pair for panel in axes.flat for pair in zip(*reversed(panel.get_legend_handles_labels())))
    figure.legend(keys.values(), keys, loc="upper center", bbox_to_anchor=(0.5, 0), ncols=4, frameon=False)
    figure.tight_layout()
    return svg(figure)


def gain(series):
    """The highest load as bars, best queue first; None where there is no overload or one queue only.

    Where several places have it, at other delays or lifetimes, none is picked: bars are means of all
    in which any frame could be on time, of the queues that were run at every one of them.
    """
    tightest = series.runs["load"].max()
    at = {cell for cell, load in series.runs.select("cell", "load").iter_rows() if load >= tightest * 0.999}
    possible = {cell.place for cell in series.cells.values() if cell.id in at and cell.values("frames of bound %")}
    places = [place for place in series.places if place in possible and series.cell(place, series.ours)]
    of = lambda label, cells: mean([mean(cell.values(label)) for cell in cells])
    if not places or tightest <= 1:
        return None
    bars = []
    for queue in series.queues:
        found = [series.cell(place, queue) for place in places]
        if all(found) and all(cell.values("audio %") and cell.values("frames of bound %") for cell in found):
            stale = sum(sum(cell.values("stale")) for cell in found)
            bars.append((queue, of("audio %", found), of("frames of bound %", found), stale))
    if len(bars) < 2:
        return None
    bars.sort(key=lambda bar: bar[2])
    figure = Figure(figsize=(8, 0.9 + 0.36 * len(bars)), facecolor="white")
    panel = figure.subplots()
    for y, (_, audio, frames, late) in enumerate(bars):
        for value, colour, shift in ((audio, COLOURS[0], 0.19), (frames, COLOURS[1], -0.19)):
            panel.barh(y + shift, min(value, 100), 0.34, color=colour)
            panel.text(min(value, 100) + 0.6, y + shift, f"{value:.0f}", va="center", fontsize=8)
        panel.text(118, y, f"{late:.0f}", va="center", ha="right")
    panel.text(118, len(bars) - 0.45, "stale arrivals", ha="right", fontsize=8, color="#5b636b")
    panel.set_yticks(range(len(bars)), [bar[0] for bar in bars])
    panel.set_xlim(0, 118)
    panel.set_xticks(range(0, 101, 20))
    panel.grid(axis="y", visible=False)
    others = f"; mean of {len(places)} cells" if len(places) > 1 else ""
    panel.set_title(
        f"{series.said['title']}: {tightest:.1f} times what the link carries{others}", loc="left", fontsize=10
    )
    keys = [Patch(color=colour) for colour in COLOURS[:2]]
    words = ["audio packets on time, %", "complete frames on time, % of the best any schedule could do"]
    figure.legend(keys, words, loc="lower center", bbox_to_anchor=(0.5, -0.04), ncols=2, frameon=False, fontsize=8)
    return svg(figure)
