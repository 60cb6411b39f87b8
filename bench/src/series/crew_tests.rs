//! Crews of real processes that speak as guests do. No virtual machine is started.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::anyhow;

use super::*;
use crate::{
    scenario::Scenario,
    series::{job::jobs, store},
};

/// Eight runs: two points, two queues, two repetitions.
const TEXT: &str = r#"
title = "t"
repetitions = 2
seconds = 1
queues = ["pfifo 5", "pfifo 6"]
[topology]
rate = "253kbit"
owd = [5, 40]
[traffic]
model = "conference"
"#;

/// Long enough for any test, so that nothing is given up.
const FOREVER: Patience = Patience {
    least: Duration::from_secs(3600),
    per_traffic: 1,
    per_slowest: 1,
    grace: Duration::from_secs(15),
};

struct Place {
    directory: tempfile::TempDir,
    scenario: Scenario,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("t.toml");
        fs::write(&file, TEXT).expect("written");
        let scenario = Scenario::load(&file).expect("a scenario");
        Self {
            directory,
            scenario,
        }
    }

    fn root(&self) -> &Path {
        self.directory.path()
    }

    /// A crew whose guest number n, from 0, is this shell script. `$1` is its share, and
    /// `$2` the directory; `run FATE LINE` says something of a run, `all` makes the
    /// rest of the share.
    fn work(&self, guests: usize, patience: Patience, script: &str) -> Result<Vec<Vec<Name>>> {
        let jobs = jobs(&self.scenario, self.scenario.repetitions, &[]);
        let mut shares: Vec<Vec<Name>> = Vec::new();
        let result = Crew {
            jobs: &jobs,
            guests,
            patience,
            launch: |runs: &[Name], first, seat: usize| {
                let number = shares.len();
                shares.push(runs.to_vec());
                let lines: Vec<String> = runs
                    .iter()
                    .map(|run| serde_json::to_string(run).expect("JSON"))
                    .collect();
                let file = self.root().join(format!("share-{number}"));
                fs::write(&file, lines.join("\n") + "\n")?;
                let mut command = Command::new("sh");
                command
                    .arg("-c")
                    .arg(format!("{PRELUDE}{script}"))
                    .arg(number.to_string())
                    .arg(file)
                    .arg(self.root())
                    .arg(if first { "first" } else { "later" })
                    .arg(seat.to_string());
                Ok(command)
            },
            left: || {
                let kept = self.kept();
                let left = |at: &usize| !kept.contains(&Name::of(&jobs[*at]));
                Ok((0..jobs.len()).filter(left).collect())
            },
            account: |before| Account::new(self.root().join("out"), jobs.len(), before),
        }
        .work();
        result.map(|()| shares)
    }

    /// Runs that guests said they kept.
    fn kept(&self) -> BTreeSet<Name> {
        let text = fs::read_to_string(self.root().join("kept")).unwrap_or_default();
        let run = |line: &str| serde_json::from_str(line).expect("a name");
        text.lines().map(run).collect()
    }

    fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.root().join(file)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

const PRELUDE: &str = r#"
share=$1 dir=$2 how=$3 seat=$4
open() { echo '{"event":"open"}'; }
run() { printf '{"event":"run","name":%s,"fate":%s}\n' "$2" "$1"; }
make() { run '"begun"' "$1"; echo "$1" >>"$dir/kept"; run '{"done":"well"}' "$1"; }
all() { while read -r line; do grep -qF "$line" "$dir/kept" 2>/dev/null || make "$line"; done <"$share"; }
"#;

fn alive(pid: &str) -> bool {
    PathBuf::from(format!("/proc/{pid}")).exists()
}

#[test]
fn each_run_is_made_once_and_points_stay_together() {
    let place = Place::new();
    let shares = place.work(3, FOREVER, "open; all").expect("all");
    assert_eq!(place.lines("kept").len(), 8);
    assert_eq!(place.kept().len(), 8);
    assert!(shares.len() > 1, "{shares:?}");
    for share in shares {
        // Both queues of a point and repetition are in it.
        assert_eq!(share.len() % 2, 0, "{share:?}");
        for pair in share.chunks(2) {
            let text = serde_json::to_string(pair).expect("JSON");
            assert!(
                text.contains("pfifo-5") && text.contains("pfifo-6"),
                "{text}"
            );
        }
    }
    // Nothing is left to do, and that is found out.
    place.work(3, FOREVER, "open; all").expect("nothing");
    assert_eq!(place.lines("kept").len(), 8);
}

#[test]
fn no_other_guest_starts_before_the_first_has_opened_the_directory() {
    let place = Place::new();
    // Runs of something else are there, which the first guest removes.
    let old = jobs(&place.scenario, 2, &[]);
    let names: Vec<String> = old[..6]
        .iter()
        .map(|job| serde_json::to_string(&Name::of(job)).expect("JSON"))
        .collect();
    fs::write(place.root().join("kept"), names.join("\n") + "\n").expect("written");
    let script = r#"
        if [ "$how" = first ]; then
            echo first >>"$dir/opened"
            sleep 0.3
            rm "$dir/kept"
            echo removed >>"$dir/opened"
        else
            echo later >>"$dir/opened"
        fi
        open; all"#;
    place.work(2, FOREVER, script).expect("all anew");
    assert_eq!(place.lines("kept").len(), 8);
    assert_eq!(place.lines("opened")[..2], ["first", "removed"]);
    assert!(
        place.lines("opened")[2..]
            .iter()
            .all(|line| line == "later")
    );
}

#[test]
fn a_guest_that_dies_is_replaced_and_repeats_nothing() {
    let place = Place::new();
    // It keeps one run without a word, and dies in the next.
    let script = r#"
        open
        if [ "$0" = 0 ]; then
            { read -r a; read -r b; } <"$share"
            make "$a" >/dev/null
            run '"begun"' "$b"
            kill -9 $$
        fi
        while read -r line; do
            if grep -qF "$line" "$dir/kept"; then run '{"done":"there"}' "$line"; else make "$line"; fi
        done <"$share""#;
    place.work(2, FOREVER, script).expect("the next goes on");
    assert_eq!(place.lines("kept").len(), 8);
    assert_eq!(place.kept().len(), 8);
}

#[test]
fn a_run_on_which_two_guests_end_has_failed_and_the_rest_is_made() {
    let place = Place::new();
    let script = r#"
        open
        while read -r line; do
            case $line in
            *owd=5_pfifo-5*\"number\":0*) run '"begun"' "$line"; exit 125 ;;
            esac
            make "$line"
        done <"$share""#;
    let error = place.work(2, FOREVER, script).expect_err("one failed");
    assert!(error.to_string().starts_with("1 run failed"), "{error}");
    assert_eq!(place.lines("kept").len(), 7);
}

#[test]
fn a_guest_that_hangs_is_ended_and_its_run_passed_over() {
    let place = Place::new();
    let impatient = Patience {
        least: Duration::from_secs(2),
        per_traffic: 0,
        per_slowest: 0,
        grace: Duration::from_secs(1),
    };
    // Only runs of one cell hang; what is quick elsewhere is far below the limit.
    let script = r#"
        open
        while read -r line; do
            case $line in
            *owd=40_pfifo-6*\"number\":1*)
                run '"begun"' "$line"
                echo $$ >>"$dir/hung"
                exec sleep 3600
                ;;
            esac
            make "$line"
        done <"$share""#;
    let error = place.work(1, impatient, script).expect_err("one failed");
    assert!(error.to_string().starts_with("1 run failed"), "{error}");
    assert_eq!(place.lines("kept").len(), 7);
    let hung = place.lines("hung");
    assert_eq!(hung.len(), 2);
    assert!(hung.iter().all(|pid| !alive(pid)), "{hung:?}");
}

#[test]
fn a_guest_that_does_not_end_when_told_to_is_killed() {
    let place = Place::new();
    let impatient = Patience {
        least: Duration::from_secs(1),
        per_traffic: 0,
        per_slowest: 0,
        grace: Duration::from_secs(1),
    };
    // A program of the first guest's lives on, and holds its output open.
    let script = r#"
        open
        if [ "$0" = 0 ]; then
            { read -r a; } <"$share"
            run '"begun"' "$a"
            trap '' TERM
            echo $$ >>"$dir/hung"
            sleep 3600 &
            echo $! >>"$dir/orphan"
            wait
        fi
        all"#;
    place.work(1, impatient, script).expect("the next goes on");
    assert_eq!(place.lines("kept").len(), 8);
    let hung = place.lines("hung");
    assert!(hung.len() == 1 && !alive(&hung[0]), "{hung:?}");
    let orphan = place.lines("orphan")[0].parse().expect("a process");
    // SAFETY: plain integers; the test's own process, which nobody else waits for.
    unsafe { libc::kill(orphan, libc::SIGKILL) };
}

#[test]
fn what_breaks_one_guest_ends_the_others_and_gives_its_words() {
    let place = Place::new();
    let script = r#"
        open
        if [ "$0" = 0 ]; then
            until [ -e "$dir/other" ]; do sleep 0.02; done
            echo '{"event":"broken","why":"no space left"}'
            exit 0
        fi
        echo $$ >>"$dir/other"
        exec sleep 3600"#;
    let error = place.work(2, FOREVER, script).expect_err("broken");
    assert_eq!(error.to_string(), "no space left");
    let [other] = &place.lines("other")[..] else {
        panic!("one other guest")
    };
    assert!(!alive(other));
}

#[test]
fn no_two_guests_sit_on_one_seat() {
    let place = Place::new();
    // `mkdir` fails if it is there; each guest stays until another sat down, or half a second.
    let script = r#"
open
mkdir "$dir/seat-$seat" || { echo "$seat" >>"$dir/twice"; exit 1; }
echo "$seat" >>"$dir/seats"
all
sleep 0.3
rmdir "$dir/seat-$seat"
"#;
    place.work(2, FOREVER, script).expect("all");
    let seats: BTreeSet<String> = place.lines("seats").into_iter().collect();
    assert_eq!(seats, ["0", "1"].map(str::to_owned).into());
    assert_eq!(place.lines("twice"), [""; 0]);
}

#[test]
fn a_guest_that_cannot_begin_ends_the_series_at_once() {
    let place = Place::new();
    let script = r#"echo x >>"$dir/starts"; exit 125"#;
    let error = place.work(2, FOREVER, script).expect_err("no guest");
    assert!(
        error.to_string().contains("before it could begin"),
        "{error}"
    );
    assert_eq!(place.lines("starts").len(), 1);
    // Opened, yet no run begun: the second tells that it is not by chance.
    let script = r#"open; echo x >>"$dir/opens"; exit 125"#;
    let error = place.work(1, FOREVER, script).expect_err("no runs");
    assert!(error.to_string().contains("2 guests in a row"), "{error}");
    assert_eq!(place.lines("opens").len(), 2);
}

#[test]
fn patience_follows_the_traffic_and_the_slowest_run() {
    let place = Place::new();
    let jobs = jobs(&place.scenario, 1, &[]);
    let patience = Patience {
        least: Duration::from_secs(10),
        per_traffic: 60,
        per_slowest: 5,
        ..FOREVER
    };
    let with = |job, slowest| patience.with(job, Duration::from_secs(slowest)).as_secs();
    assert_eq!(with(None, 0), 10);
    assert_eq!(with(jobs.first(), 0), 60);
    assert_eq!(with(jobs.first(), 30), 150);
}

#[test]
fn a_share_is_read_as_it_is_written() {
    let place = Place::new();
    let jobs = jobs(&place.scenario, 2, &[]);
    let names: Vec<Name> = jobs.iter().map(Name::of).collect();
    let file = place.root().join("share.json");
    store::put(&file, &names).expect("written");
    let read: BTreeSet<Name> = store::get(&file)
        .and_then(|share| share.ok_or_else(|| anyhow!("gone")))
        .expect("read");
    assert_eq!(read.len(), names.len());
    assert!(names.iter().all(|name| read.contains(name)));
}
