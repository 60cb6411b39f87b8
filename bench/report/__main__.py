"""Results for people: `python -m report --help`, started by `./dev report`."""

import argparse
import sys

from report import compare, docs, page, tables
from report.figures import FIGURES
from report.series import Refused, Series


def arguments():
    parser = argparse.ArgumentParser(prog="report", description=__doc__)
    commands = parser.add_subparsers(required=True, dest="command")
    whole = commands.add_parser("page", help="write report.html of a results' directory, and print its path")
    whole.add_argument("directory", help="what `bestby-lab run` was given as --out")
    pages = commands.add_parser("docs", help="put tables and picture of bench/runs into docs/")
    pages.add_argument("--check", action="store_true", help="write nothing: fail where they are others")
    for name, help in (
        ("table", "Markdown tables of figures"),
        ("best", "where another queue is better than bestby, and where more was possible"),
    ):
        command = commands.add_parser(name, help=help)
        command.add_argument("place", help="a results' directory, or one .parquet file of bench/runs")
        command.add_argument(
            "--only", default="", metavar="WORD,...", help="cells whose place or queue has one of these words in it"
        )
        command.add_argument(
            "--across", metavar="AXIS", help="one table with the values of this axis (or of `queue`) as its columns"
        )
    columns = ", ".join(FIGURES).replace("%", "%%")
    command = commands.choices["table"]
    command.add_argument(
        "--columns", default="", metavar="NAME,...", help=f"the figures, `±` behind one for its interval: {columns}"
    )
    command.add_argument("--against", metavar="QUEUE", help="what each queue has more than this one")
    return parser.parse_args()


def show(series, chosen):
    yield from [f"### {series.name}: {series.said['title']}", "", f"{series.made_by()}.", ""]
    for warning in series.warnings():
        yield from [f"**{warning}**", ""]
    if chosen.command == "table":
        if chosen.across:
            yield from tables.across(series, chosen.columns, chosen.across)
        elif chosen.against:
            yield from tables.against(series, chosen.columns, chosen.against)
        else:
            yield from tables.by_place(series, chosen.columns)
    elif series.ours is None:
        raise Refused(f"no queue of bestby is among those of {series.name}")
    elif chosen.across:
        yield from tables.best(series, chosen.across)
    else:
        found = compare.compare(series)
        yield from [compare.ahead(series, found), ""]
        for head, rows in (page.LOST, [*page.lost_rows(found)]), (page.SHORT, [*page.short_rows(series)]):
            if rows:
                yield from [*tables.markdown(head, rows), ""]


def main():
    chosen = arguments()
    try:
        if chosen.command == "page":
            return print(page.write(chosen.directory))
        if chosen.command == "docs":
            return docs.write(chosen.check)
        for series in Series.read_all(chosen.place):
            some = series.only([word for word in chosen.only.split(",") if word])
            print("\n".join(show(some, chosen)))
    except Refused as refused:
        sys.exit(f"report: {refused}")


if __name__ == "__main__":
    main()
