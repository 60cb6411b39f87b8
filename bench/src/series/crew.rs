//! Several guests at once make the runs of a series.
//!
//! All that is decided is decided here, by one thread: a guest gets a share of the runs,
//! says what comes of each, and ends. The runs of one point and repetition stay together
//! (see [`groups`]). Shares get smaller towards the end, so that all guests end at about
//! the same time. The first guest alone opens the results' directory and removes what
//! must go; no other is started before it has said so. A guest that dies, or finishes no
//! run for too long, is replaced; a run on which two guests ended has failed.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    process::Command,
    sync::mpsc::{self, RecvTimeoutError},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};

use super::{
    account::Account,
    event::{Event, Fate, Listener, Name},
    guest::{self, Guests, News},
    job::{Job, groups},
};
use crate::{cleanup, say::count};

/// Guests that may end on one run.
const TRIES: u32 = 2;

/// When a guest that finishes no run is taken for hanging. What counts is the longest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// Real time, whatever it does.
    pub(super) least: Duration,
    /// As many times the length of the run's traffic.
    pub(super) per_traffic: u32,
    /// As many times the slowest run of this series so far.
    pub(super) per_slowest: u32,
    /// How long a guest that is told to end may take; then it is killed.
    pub(super) grace: Duration,
}

impl Patience {
    fn with(self, job: Option<&Job<'_>>, slowest: Duration) -> Duration {
        let traffic = job.map_or(0, |job| job.scenario.seconds);
        self.least
            .max(Duration::from_secs(traffic) * self.per_traffic)
            .max(slowest * self.per_slowest)
    }
}

/// What a crew needs to know of the world.
pub(super) struct Crew<'a, Launch, Left, Open> {
    pub(super) jobs: &'a [Job<'a>],
    /// Guests at once, at least 1.
    pub(super) guests: usize,
    pub(super) patience: Patience,
    /// The command of a guest that makes these runs; the first opens the results' directory.
    /// The last argument is the guest's seat: below `guests`, and no other's while it lives.
    pub(super) launch: Launch,
    /// Places in `jobs` of the runs that are not there.
    pub(super) left: Left,
    /// The account of a series of which so many runs were there.
    pub(super) account: Open,
}

/// A guest at work.
#[derive(Debug)]
struct Worker {
    /// Of its share, what it has not finished: places in the jobs.
    share: Vec<usize>,
    seat: usize,
    under_way: Option<usize>,
    /// When it last said something about a run.
    heard: Instant,
    opened: bool,
    made: usize,
    /// Ended from here, after so long without a finished run.
    given_up: Option<Duration>,
}

/// A series under way.
struct Work<'a, Launch, Left, Open> {
    crew: Crew<'a, Launch, Left, Open>,
    guests: Guests,
    workers: BTreeMap<usize, Worker>,
    /// Groups that no guest has.
    queue: VecDeque<Vec<usize>>,
    places: BTreeMap<Name, usize>,
    account: Option<Account>,
    /// Guests that ended on a run.
    ended_on: BTreeMap<usize, u32>,
    /// Guests in a row that ended before they could begin.
    in_vain: u32,
    slowest: Duration,
}

impl<Launch, Left, Open> Crew<'_, Launch, Left, Open>
where
    Launch: FnMut(&[Name], bool, usize) -> Result<Command>,
    Left: Fn() -> Result<Vec<usize>>,
    Open: Fn(usize) -> Account,
{
    /// Makes all runs. However this ends, no guest is left.
    pub(super) fn work(self) -> Result<()> {
        let jobs = self.jobs;
        let places = (0..).zip(jobs).map(|(at, job)| (Name::of(job), at));
        let left = (self.left)()?;
        Work {
            guests: Guests::new(self.patience.grace),
            workers: BTreeMap::new(),
            queue: groups(jobs, left).into(),
            places: places.collect(),
            account: None,
            ended_on: BTreeMap::new(),
            in_vain: 0,
            slowest: Duration::ZERO,
            crew: self,
        }
        .run()
    }
}

impl<Launch, Left, Open> Work<'_, Launch, Left, Open>
where
    Launch: FnMut(&[Name], bool, usize) -> Result<Command>,
    Left: Fn() -> Result<Vec<usize>>,
    Open: Fn(usize) -> Account,
{
    fn run(mut self) -> Result<()> {
        let (sender, news) = mpsc::channel();
        let mut ids = 0..;
        let first = self.share();
        let mut next = Some(first);
        loop {
            while let Some(share) = next.take() {
                let id = ids.next().context("no number for a guest")?;
                let worker = self.start(share, id, &sender)?;
                self.workers.insert(id, worker);
                if self.account.is_some()
                    && self.workers.len() < self.crew.guests
                    && !self.queue.is_empty()
                {
                    next = Some(self.share());
                }
            }
            if self.workers.is_empty() {
                break;
            }
            match news.recv_timeout(self.until_too_long()) {
                Ok((id, news)) => {
                    if cleanup::is_ending() {
                        cleanup::wait_for_the_end();
                    }
                    self.hear(id, news)?;
                }
                Err(RecvTimeoutError::Timeout) => self.give_up(),
                Err(RecvTimeoutError::Disconnected) => bail!("the guests' news stopped"),
            }
            let free = self.workers.len() < self.crew.guests;
            let may = self.account.is_some() || self.workers.is_empty();
            if free && may && !self.queue.is_empty() {
                next = Some(self.share());
            }
        }
        match self.account {
            Some(account) => account.close(),
            None => bail!("no guest opened the results' directory"),
        }
    }

    /// The next share: of the work that no guest has, what leaves each guest two shares more.
    fn share(&mut self) -> Vec<usize> {
        let work = |group: &Vec<usize>| -> u64 {
            let seconds = |&at: &usize| self.crew.jobs[at].scenario.seconds;
            group.iter().map(seconds).sum()
        };
        let total: u64 = self.queue.iter().map(work).sum();
        let fair = match self.crew.guests {
            // Nobody would wait for it.
            0 | 1 => total,
            guests => total.div_ceil(2 * guests as u64),
        };
        let mut share = Vec::new();
        let mut taken = 0;
        while let Some(group) = self.queue.front()
            && (share.is_empty() || taken + work(group) <= fair)
        {
            taken += work(group);
            share.extend(self.queue.pop_front().into_iter().flatten());
        }
        share
    }

    fn start(
        &mut self,
        share: Vec<usize>,
        id: usize,
        sender: &mpsc::Sender<(usize, News)>,
    ) -> Result<Worker> {
        let names: Vec<Name> = share
            .iter()
            .map(|&at| Name::of(&self.crew.jobs[at]))
            .collect();
        let taken = |seat: &usize| self.workers.values().any(|worker| worker.seat == *seat);
        let seat = (0..self.crew.guests)
            .find(|seat| !taken(seat))
            .context("no seat for one more guest")?;
        let mut command = (self.crew.launch)(&names, self.account.is_none(), seat)?;
        self.guests.start(&mut command, id, sender)?;
        Ok(Worker {
            share,
            seat,
            under_way: None,
            heard: Instant::now(),
            opened: false,
            made: 0,
            given_up: None,
        })
    }

    fn hear(&mut self, id: usize, news: News) -> Result<()> {
        match news {
            News::Aside(line) => note!("{line}"),
            News::Line(line) => match Event::parse(&line) {
                None => say!("{line}"),
                // Of a program that a killed guest left behind: what it keeps is found there.
                Some(_) if !self.workers.contains_key(&id) => {}
                Some(Event::Broken { why }) => bail!("{why}"),
                Some(Event::Open) => self.opened(id)?,
                Some(Event::Run { name, fate }) => self.happened(id, &name, fate)?,
            },
            News::Ended(status) => {
                if let Some(worker) = self.workers.remove(&id) {
                    let well = status.as_ref().is_ok_and(|status| status.success());
                    if !(well && worker.opened && worker.share.is_empty()) {
                        self.died(worker, &guest::words(&status))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn opened(&mut self, id: usize) -> Result<()> {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.opened = true;
            worker.heard = Instant::now();
        }
        if self.account.is_some() {
            return Ok(());
        }
        // Only now is it known which runs stay. What this guest was given is left, though it
        // may have made some of it by now.
        let given: BTreeSet<usize> = self
            .workers
            .values()
            .flat_map(|worker| worker.share.iter().copied())
            .collect();
        let left: BTreeSet<usize> = (self.crew.left)()?
            .into_iter()
            .chain(given.clone())
            .collect();
        let jobs = self.crew.jobs;
        if left.is_empty() {
            say!("{} asked for, and there", count(jobs.len(), "run"));
        }
        self.account = Some((self.crew.account)(jobs.len() - left.len()));
        let free = left.into_iter().filter(|at| !given.contains(at));
        self.queue = groups(jobs, free).into();
        Ok(())
    }

    fn happened(&mut self, id: usize, name: &Name, fate: Fate) -> Result<()> {
        let (Some(&at), Some(worker)) = (self.places.get(name), self.workers.get_mut(&id)) else {
            bail!("a guest speaks of a run that nobody asked for: {name:?}");
        };
        if fate == Fate::Begun {
            worker.under_way = Some(at);
        } else {
            if worker.under_way.take() == Some(at) {
                self.slowest = self.slowest.max(worker.heard.elapsed());
            }
            worker.share.retain(|&other| other != at);
            worker.made += 1;
        }
        worker.heard = Instant::now();
        self.in_vain = 0;
        self.account(at, fate)
    }

    fn account(&mut self, at: usize, fate: Fate) -> Result<()> {
        let account = self
            .account
            .as_mut()
            .context("a run was made before the results' directory was open")?;
        account.hear(&self.crew.jobs[at], fate)
    }

    /// Gives the runs of a guest that ended too early back.
    fn died(&mut self, worker: Worker, how: &str) -> Result<()> {
        let how = match worker.given_up {
            Some(time) => format!("no run finished in {} s", time.as_secs()),
            None => how.to_owned(),
        };
        let Worker {
            mut share,
            under_way,
            made,
            ..
        } = worker;
        let after = count(made, "run");
        if let Some(at) = under_way {
            let job = &self.crew.jobs[at];
            let run = format!("{} {} run {}", job.scenario.name, job.cell.id, job.number);
            let ended = self.ended_on.entry(at).or_default();
            *ended += 1;
            if *ended < TRIES {
                note!("a guest ended ({how}) after {after}, in {run}: the next one goes on");
            } else {
                share.retain(|&other| other != at);
                let why =
                    format!("{ended} guests ended in it, this one so: {how}; it is passed over");
                self.account(at, Fate::Failed(why))?;
            }
        } else if made == 0 {
            self.in_vain += 1;
            ensure!(
                worker.opened || (self.account.is_some() && self.in_vain < TRIES),
                "the guest ended ({how}) before it could begin: its last words are above; \
                 `tests/vm/run -- true` shows whether guests start at all"
            );
            ensure!(
                self.in_vain < TRIES,
                "{TRIES} guests in a row ended ({how}) before their first run, see above"
            );
            note!("a guest ended ({how}) before its first run: the next one goes on");
        } else {
            note!("a guest ended ({how}) after {after}: the next one goes on");
        }
        for group in groups(self.crew.jobs, share).into_iter().rev() {
            self.queue.push_front(group);
        }
        Ok(())
    }

    fn limit(&self, worker: &Worker) -> Duration {
        let job = worker.under_way.map(|at| &self.crew.jobs[at]);
        self.crew.patience.with(job, self.slowest)
    }

    fn until_too_long(&self) -> Duration {
        self.workers
            .values()
            .filter(|worker| worker.given_up.is_none())
            .map(|worker| self.limit(worker).saturating_sub(worker.heard.elapsed()))
            .min()
            .unwrap_or(Duration::from_secs(60))
    }

    /// Ends the guests that finish nothing.
    fn give_up(&mut self) {
        let late: Vec<(usize, Duration)> = self
            .workers
            .iter()
            .filter(|(_, worker)| worker.given_up.is_none())
            .map(|(&id, worker)| (id, worker.heard.elapsed()))
            .filter(|(id, silent)| *silent >= self.limit(&self.workers[id]))
            .collect();
        for (id, silent) in late {
            if let Some(worker) = self.workers.get_mut(&id) {
                worker.given_up = Some(silent);
                self.guests.end(id);
            }
        }
    }
}

#[cfg(test)]
#[path = "crew_tests.rs"]
mod tests;
