"""What data make of the pages below `docs/`: their tables, by `cog`, and the picture of the quick profile."""

from pathlib import Path

from cogapp import Cog

from report import plots, tables
from report.series import Refused, Series

ROOT = Path(__file__).parent.parent.parent
RUNS = ROOT / "bench" / "runs"
PAGES = ("results.md", "lpd-figures.md", "client-figures.md", "tcp-real-figures.md")
COG = [
    "cog",
    "-p",
    "from report.docs import LAYERS, LAYERS_KB, PEERS, best, table",
    "--check-fail-msg",
    "./dev docs puts the tables there",
]

# bestby's two modes, the papers' combination and what Linux has for it, in the tables of a relay and of a stalled link.
PEERS = "triage,ring-sfdps2,bestby tc,fq_codel,cake besteffort"

# Eight layers, in one cell of a table.
LAYERS = ",".join(f"layer {n}" for n in range(1, 9))
LAYERS_KB = ",".join(f"layer {n} kB" for n in range(1, 9))


def write(check):
    """Puts all of them there; `check` refuses what is not what its runs say, and writes nothing."""
    file, picture = ROOT / "docs" / "gain.svg", plots.gain(read("quick"))
    if check and file.read_text() != picture:
        raise Refused(f"{file} is not the picture of its runs: ./dev docs draws it")
    if not check:
        file.write_text(picture)
    pages = [str(ROOT / "docs" / page) for page in PAGES]
    if Cog().main([*COG, "--check" if check else "-r", *pages]):
        raise Refused(f"a table of {' or '.join(pages)} is not what its runs say")


def read(name, only=""):
    """The runs that are kept of a scenario; `only` as on the command line."""
    return Series.read(RUNS / f"{name}.parquet").only([word for word in only.split(",") if word])


def table(name, columns, across, only=""):
    """One table of these columns in all places."""
    put(tables.across(read(name, only), columns, across))


def best(name, across):
    """bestby's queue and the best other one."""
    put(tables.best(read(name), across))


def put(lines):
    import cog  # there only while cog runs

    cog.outl("\n".join(lines))
