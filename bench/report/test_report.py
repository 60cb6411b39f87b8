"""What tables and page say, of made-up runs and of those that are kept."""

import polars as pl
import pytest
from scipy import stats

from report import compare, docs, page, statistics, tables
from report.docs import RUNS
from report.series import OURS, Refused, Series

# R's `sleep`: extra hours of sleep with two drugs, ten patients each (Student 1908).
SLEEP = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0], [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]


def series(axes, cells):
    """Of cells (place, queue, frames on time of 100 in each run, all audio of 1000 or so much)."""
    rows = []
    for place, queue, frames, *audio in cells:
        places = {f"axis.{name}": value for name, value in zip(axes, place)}
        offered, arrived = (1000, audio[0]) if audio else (0, 0)
        of_audio = {"audio.offered": offered, "audio.on_time": arrived}
        for run, on_time in enumerate(frames):
            both = {"frames.offered": 100, "frames.on_time": on_time, "adus.offered": 100, "adus.on_time": on_time}
            rows.append({
                "cell": f"{'_'.join(place)}_{queue}", "queue": queue, **places, "run": run, **both, **of_audio,
                "stale_arrivals": 0, "would_block": 0, "refused": 0, "load": 2.0,
                "bound.video.adus": 90, "bound.audio.adus": 1000, "bound.audio.adus_offered": 1000,
            })  # fmt: skip
    known = lambda at: list(dict.fromkeys(place[at] for place, *_ in cells))
    said = {
        "name": "made", "title": "A <made> up series", "description": "What & why", "seconds": 20, "discard_first": 3,
        "repetitions": 2, "missing": 2, "absent": [{"queue": "cake", "reason": "not on this kernel"}],
        "axes": [{"axis": name, "unit": "ms" * (name == "owd"), "values": known(at)} for at, name in enumerate(axes)],
        "queues": list(dict.fromkeys(queue for _, queue, *_ in cells)), "kernel": "7.2-test", "machine": "a machine",
        "commit": "0123", "seed": 41, "commands": ["bestby-lab run made.toml"],
    }  # fmt: skip
    return Series(said, pl.DataFrame(rows))


def two_axes():
    figures = [("5", "1", 90, 30, 40), ("5", "2", 70, 20, 10), ("75", "1", 60, 16, 16), ("75", "2", 50, 14, 12)]
    cells = []
    for owd, load, *queues in figures:
        for queue, frames in zip((OURS, "fq", "pfifo 32"), queues):
            cells.append(((owd, load), queue, [frames, frames + 4 * (queue == OURS)]))
    return series(["owd", "load"], cells)


def test_estimate_of_sleep_is_that_of_r():
    found = statistics.estimate(SLEEP[0])
    assert (found.mean, found.half) == (pytest.approx(0.75), pytest.approx(1.2797804, abs=1e-6))
    assert statistics.estimate([5.0]).half is None and statistics.estimate([]) is None


def test_paired_of_sleep_is_that_of_r():
    found = statistics.paired(list(zip(*SLEEP)), 0.1)
    assert found.p == pytest.approx(0.002833, abs=5e-7)
    assert found.mean - found.half == pytest.approx(-2.4598858, abs=1e-6)
    assert found.p == pytest.approx(stats.ttest_rel(*SLEEP).pvalue)


@pytest.mark.parametrize("by, runs, certain", [(2, 2, False), (2, 5, True), (50, 2, True), (0, 30, False)])
def test_paired_one_adu_in_two_runs_proves_nothing(by, runs, certain):
    assert (statistics.paired([(50, 50 + by)] * runs, 2).p < statistics.SIGNIFICANCE) is certain


def test_holm_is_that_of_r():
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert statistics.holm([]) == []


def test_by_place_each_place_has_a_table():
    lines = tables.by_place(two_axes(), "frames %,audio %,stale")
    assert "owd 75 ms, load 2:" in lines
    assert "| queue | frames % | stale |" in lines, "no run has audio"
    assert "| bestby qdisc triage | 92.00 ± 25.41 | 0.0 ± 0.0 |" in lines


def test_across_an_axis_makes_the_columns():
    lines = tables.across(two_axes(), "frames %,stale", "load")
    assert lines[0] == "| owd, ms | queue | load 1 | load 2 |"
    assert lines[2] == "| 5 | bestby qdisc triage | 92.0, 0.0 | 72.0, 0.0 |"
    assert tables.across(two_axes(), "frames % ±", "queue")[2].startswith("| 5 | 1 | 92.00 ± 25.41 | 30.00 ± 0.00 |")


def test_across_a_queue_that_is_told_nothing_stands_beside_every_error():
    cells = [(("-0.5",), OURS, [70, 70]), (("0",), "fq", [30, 30]), (("0",), OURS, [90, 90])]
    lines = tables.across(series(["rtt_error"], cells), "frames %", "queue")
    assert lines[2:] == ["| -0.5 | 70.0 | 30.0 |", "| 0 | 90.0 | 30.0 |"]


def test_best_the_best_peer_stands_beside_ours():
    row = "| 5 | –, 92.0 (102 ± 28); –, 40.0 pfifo 32 | –, 72.0 (80 ± 28); –, 20.0 fq |"
    assert tables.best(two_axes(), "load")[2] == row


@pytest.mark.parametrize("audio, best", [(1000, "pfifo"), (999, "pfifo"), (998, "fq")])
def test_best_peer_more_audio_counts_before_frames(audio, best):
    made = series([], [((), OURS, [9, 9], 1000), ((), "fq", [20, 20], 1000), ((), "pfifo", [30, 30], audio)])
    assert compare.best_peer(made, ()).queue == best


def test_against_the_difference_has_its_interval():
    lines = tables.against(two_axes(), "frames %", "fq")
    assert lines[4] == "| bestby qdisc triage | +62.00 ± 25.41 |" and not any(line.startswith("| fq") for line in lines)


@pytest.mark.parametrize(
    "ours, fq, verdict, better",
    [
        (([50, 54, 52], 1000), ([30, 34, 32], 1000), "leads", False),
        (([50, 54, 52], 900), ([30, 34, 32], 1000), "behind", True),  # audio decides
        (([50, 10, 30], 1000), ([30, 34, 32], 1000), "equal", True),  # by chance
        (([50, 54, 52], 1000), ([50, 54, 52], 1000), "equal", False),
        (([50], 1000), ([30], 1000), "leads", False),  # means decide
    ],
)
def test_verdict_audio_first_and_not_by_chance(ours, fq, verdict, better):
    (found,) = compare.compare(series([], [((), OURS, *ours), ((), "fq", *fq)]))
    assert (found.verdict, found.other_is_better) == (verdict, better)


def test_short_names_cells_in_which_more_was_possible():
    found = compare.short(series([], [((), OURS, [80, 82], 998)]))
    assert [*found] == [((), pytest.approx(99.8), pytest.approx(90.0))]
    assert not [*compare.short(series([], [((), OURS, [90, 88], 1000)]))]


def test_page_says_what_the_runs_say_and_needs_nothing_else():
    text = page.render([two_axes()])
    for words in (
        "A &lt;made&gt; up",
        "What &amp; why",
        "7.2-test",
        "Missing: 2",
        "not on this kernel",
        "92.00 ± 25.41",
    ):
        assert words in text, words
    for outside in ("src=", "<script", "<link", "url(http", "@import"):
        assert outside not in text, outside


@pytest.mark.parametrize("name", ["quick", "errors-rtt", "sfdps-dccp"])
def test_page_is_written_with_or_without_a_bound_and_names_every_queue(name, tmp_path):
    place = tmp_path / name
    place.mkdir()
    (place / "runs.parquet").write_bytes((RUNS / f"{name}.parquet").read_bytes())
    (tmp_path / "none").mkdir()
    said = pl.read_parquet_metadata(RUNS / f"{name}.parquet")
    pl.DataFrame().write_parquet(tmp_path / "none" / "runs.parquet", metadata={"series": said["series"]})
    text = page.write(tmp_path).read_text()
    picture = text.partition("<svg")[2].partition("</svg>")[0]
    for queue in Series.read(place / "runs.parquet").queues:
        assert f">{queue}</text>" in picture, queue
    assert (place / "gain.svg").exists() is (name != "sfdps-dccp")


def test_wrong_names_are_refused_with_those_there_are(tmp_path):
    made = two_axes()
    for call, known in [
        (lambda: tables.by_place(made, "audio %,fps"), "frames of bound %"),
        (lambda: tables.across(made, "", "loss"), "owd"),
        (lambda: tables.against(made, "", "cake"), "pfifo 32"),
        (lambda: made.only(["owd=9"]), "owd=9"),
        (lambda: Series.read_all(tmp_path), str(tmp_path)),
    ]:
        with pytest.raises(Refused, match=known):
            call()
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    with pytest.raises(Refused, match="cut"):
        Series.read_all(tmp_path)


def test_docs_picture_that_is_not_of_its_runs_is_refused(tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    for name in docs.PAGES:
        (tmp_path / "docs" / name).write_text("no table\n")
    monkeypatch.setattr(docs, "ROOT", tmp_path)
    docs.write(check=False)
    docs.write(check=True)
    (tmp_path / "docs" / "gain.svg").write_text("<svg/>")
    with pytest.raises(Refused, match="gain.svg"):
        docs.write(check=True)


def test_kept_runs_are_there():
    assert len(list(RUNS.glob("*.parquet"))) >= 15


@pytest.mark.parametrize("file", sorted(RUNS.glob("*.parquet")), ids=lambda file: file.stem)
def test_kept_runs_none_with_all_of_its_audio_is_above_the_bound(file):
    kept = Series.read(file)
    assert tables.by_place(kept, "audio %")
    # Of frames of several priorities the other bound is no sum.
    if file.stem == "media":
        return
    if file.stem == "pictures":
        whole = kept.runs.filter(pl.col("audio.on_time") == pl.col("audio.offered"))
        assert len(whole) and not len(whole.filter(pl.col("picture.intact_bound").is_null()))
        assert not len(whole.filter(pl.col("picture.intact") > pl.col("picture.intact_bound")))
        return
    # Beside TCP, or with a congestion control, there is no bound.
    if "bound.video.adus" not in kept.runs.columns:
        assert file.stem.startswith(("sfdps-", "lpd-", "ldc", "dsr", "tcp-real"))
        return
    audio, most = pl.col("audio.on_time"), pl.col("bound.audio.adus")
    runs = kept.runs.filter(most.is_not_null())
    assert len(runs) and not len(runs.filter(audio > most))
    all_of_it = runs.filter(audio == pl.min_horizontal("audio.offered", most))
    assert not len(all_of_it.filter(pl.col("frames.on_time") > pl.col("bound.video.adus")))
