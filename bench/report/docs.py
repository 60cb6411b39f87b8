"""What the pages below `docs/` call: `cog` puts a table behind each call, and `cog --check` holds it there."""

from pathlib import Path

from report import tables
from report.series import Series

RUNS = Path(__file__).parent.parent / "runs"


def read(name, only=""):
    """The runs that are kept of a scenario; `only` as on the command line."""
    return Series.read(RUNS / f"{name}.parquet").only([word for word in only.split(",") if word])


def table(name, columns, across=None, only=""):
    """A table of these columns: one for each place, or all places in one."""
    series = read(name, only)
    lines = tables.across(series, columns, across) if across else tables.by_place(series, columns)
    put(lines)


def against(name, columns, queue, only=""):
    """What each queue has more than `queue`."""
    put(tables.against(read(name, only), columns, queue))


def best(name, across):
    """bestby's queue and the best other one."""
    put(tables.best(read(name), across))


def put(lines):
    import cog  # there only while cog runs

    cog.outl("\n".join(lines).rstrip("\n"))
