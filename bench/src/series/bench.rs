//! One run on real namespaces: the path, the queue, the traffic, what came of it.

use std::{collections::BTreeMap, rc::Rc, time::Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::{
    controlled, last_hop,
    passage::{Passage, counters},
    run::{Job, Outcome, Run},
    stalled,
};
use crate::{
    bestby::{self, Agent, Switch},
    bound::Link,
    cleanup,
    competing::Competitor,
    dccp,
    measure::{self, Measures, Real},
    program::{self, Congestion, Program, Task},
    queue::{self, Installed, Queue, Told},
    records,
    scenario::cell::{Bottleneck, Control, Point},
    simulator, srt,
    sys::SECOND,
    topology::{self, Path, RouterQueue, Shape},
    traffic::{Model, Schedule},
    transfer,
};

/// Makes runs in namespaces; keeps the path, and bestby's agent on it, from one run to
/// the next.
#[derive(Debug, Default)]
pub(super) struct Bench {
    /// In the path's namespace: ends first.
    agent: Option<Rc<Agent>>,
    competitor: Option<Competitor>,
    real: Option<Switch>,
    router: Option<Agent>,
    path: Option<(Shape, Path)>,
}

impl Bench {
    /// Makes one run.
    pub(super) fn run(&mut self, job: &Job<'_>) -> Result<Outcome> {
        let began = Instant::now();
        if job.cell.point.control == Control::Dccp
            && let Some(why) = dccp::missing()
        {
            return Ok(Outcome::Absent(not_on_this_kernel(why)));
        }
        if matches!(job.cell.queue, Queue::Srt { .. })
            && let Some(why) = srt::missing()?
        {
            return Ok(Outcome::Absent(format!("not on this machine: {why}")));
        }
        let (scenario, point) = (job.scenario, &job.cell.point);
        let schedule = point.schedule(scenario.seconds, job.seed())?;
        let offered = schedule.load();
        let rate = point.link.of(offered).0;
        ensure!(
            (8_000..=10_000_000_000).contains(&rate),
            "{} of {offered:.0} bit/s asks for a link of {rate} bit/s: possible are 8 kbit/s to \
             10 Gbit/s",
            point.link
        );
        let passage = match (&job.cell.queue, point.stall) {
            (Queue::Simulated(rule), _) => simulated(rule, point, &schedule, rate),
            (_, Some(stall)) => {
                // It has a namespace and an agent of its own, and one lab's agents share a socket.
                self.agent = None;
                stalled::pass(job, &schedule, rate, stall)
            }
            _ => self.pass(job, &schedule, rate),
        };
        let passage = match passage {
            Ok(passage) => passage,
            Err(error) => {
                // Whatever it is that failed, the next run has a new agent and a new path.
                self.clear();
                return queue::not_on_this_kernel(&error)
                    .map(|why| Outcome::Absent(not_on_this_kernel(why)))
                    .ok_or(error);
            }
        };
        let (sent, arrivals) = (&passage.sent, &passage.arrivals);
        let (planned, made) = (schedule.packets.len(), sent.created.len());
        ensure!(
            made == planned,
            "{planned} packets were to be sent, {made} were"
        );
        let (extra_delay, discard) = (passage.extra_delay, scenario.discard_ns());
        let judged = measure::judge(&schedule, sent, arrivals, extra_delay, discard);
        let tcp = passage.tcp_bytes;
        let run = Run {
            number: job.number,
            seed: job.seed(),
            rate,
            load: offered / rate as f64,
            owd_ms: passage.owd as f64 / 1e6,
            delay_is_real: extra_delay == 0,
            measures: Measures {
                counters: passage.counters,
                srt: passage.srt,
                tfrc: passage.tfrc,
                last_hop: passage.last_hop,
                carried: passage.carried,
                transfer: passage.transfer,
                download_s: passage.download.map(|ns| ns as f64 / 1e9),
                tail_drops: passage.tail_drops,
                tcp_share: tcp.and_then(|tcp| measure::tcp_share(tcp, judged.received_bytes)),
                ..judged
            },
            bound: None,
            false_drops: None,
            took_s: began.elapsed().as_secs_f64(),
        };
        let packets = records::packets(&schedule, sent, arrivals, extra_delay);
        Ok(Outcome::Made(Box::new(run), packets))
    }

    /// Takes the path down, and first what is on it.
    fn clear(&mut self) {
        (self.agent, self.competitor) = (None, None);
        (self.real, self.router) = (None, None);
        self.path = None;
    }

    fn pass(&mut self, job: &Job<'_>, schedule: &Schedule, rate: u64) -> Result<Passage> {
        let (queue, point) = (&job.cell.queue, &job.cell.point);
        let shape = Shape {
            delay: point.owd_ms.ns(),
            loss: point.loss_percent.0,
            router: point.bottleneck == Bottleneck::Router,
            line: point.trace.clone().map(|trace| (point.device, trace)),
        };
        if self.path.as_ref().is_none_or(|(old, _)| *old != shape) {
            // The old one first: both have namespaces of the same names.
            self.clear();
            let path = Path::build(&shape).context("building the path")?;
            self.path = Some((shape, path));
        }
        let (_, path) = self.path.as_ref().context("the path is gone")?;
        if path.line().is_some() {
            let passage =
                last_hop::pass(job, path, schedule, &mut self.agent, &mut self.competitor)?;
            return Ok(Passage {
                owd: path.owd,
                ..passage
            });
        }
        if let Some(queue) = point.router_queue {
            path.set_router(rate, point.burst, queue)?;
        }
        let narrow = match point.router_queue {
            Some(RouterQueue::Bestby) => Some(bestby::at_router(&mut self.router, path, rate)?),
            _ => None,
        };
        let discard = job.scenario.discard_ns();
        let tcp = controlled::compete(&mut self.competitor, path, point)?;
        let agent = &mut self.agent;
        let mut passage = match (point.control, queue) {
            (Control::Program, Queue::Srt { .. }) => {
                let passage = uncontrolled(path, queue, point, schedule, rate, agent)?;
                let (sent, arrivals) = (&passage.sent, &passage.arrivals);
                let carried = program::of_other(schedule, sent, arrivals);
                Passage {
                    carried: Some(carried),
                    ..passage
                }
            }
            (Control::None, _) => uncontrolled(path, queue, point, schedule, rate, agent)?,
            (Control::Program, Queue::Program(Program::Transfer)) => {
                transferred(path, job, point, &mut self.real)?
            }
            (Control::Program, Queue::Program(program)) => {
                Switch::set(&mut self.real, path, point.congestion.real_mode())?;
                let task = Task {
                    schedule,
                    program: *program,
                    congestion: point.congestion,
                    deadline_srtts: match point.model()? {
                        Model::Layers(layers) => layers.deadline_srtts,
                        _ => 0.0,
                    },
                };
                let (sent, arrivals, carried) = program::run(path, &task)?;
                Passage {
                    sent,
                    arrivals,
                    carried: Some(carried),
                    ..Passage::default()
                }
            }
            (Control::Dccp, Queue::Pfifo(packets)) => {
                let (sent, arrivals, refused) = dccp::run(path, schedule, *packets as usize)?;
                Passage {
                    sent,
                    arrivals,
                    tail_drops: Some(refused),
                    ..Passage::default()
                }
            }
            _ => controlled::pass(path, queue, schedule, point.restart, discard, agent)?,
        };
        if let Some(running) = tcp {
            let bytes = controlled::delivered(running, &passage.sent, schedule, discard)?;
            passage.tcp_bytes = Some(bytes);
        }
        (passage.extra_delay, passage.owd) = (path.extra_delay, path.owd);
        drop(narrow);
        Ok(passage)
    }
}

/// Sends `schedule` at its own times.
fn uncontrolled(
    path: &Path,
    queue: &Queue,
    point: &Point,
    schedule: &Schedule,
    rate: u64,
    agent: &mut Option<Rc<Agent>>,
) -> Result<Passage> {
    let relays = point.model()?.is_relay();
    let receivers = match relays {
        true => topology::clients(schedule.streams()),
        false => vec![topology::RECEIVER],
    };
    let told = Told::of(point, rate, path.owd, &receivers);
    let mut installed = Installed::sharing(queue, path.sender(), topology::DEVICE, &told, agent)
        .with_context(|| format!("installing {queue} at {rate} bit/s"))?;
    if matches!(queue, Queue::Rules { .. }) {
        installed.add_rules(schedule)?;
    }
    let marking = queue.marking(told.owd);
    let (sent, arrivals, srt) = if let Queue::Srt { paced } = queue {
        let settings = srt::Settings::new(schedule, told.rate.unwrap_or(rate), told.owd, *paced)?;
        let lossy = point.loss_percent.0 > 0.0;
        let (sent, arrivals, counters) = srt::run(path, schedule, &settings, lossy)?;
        (sent, arrivals, Some(counters))
    } else {
        let (sent, arrivals) = match relays {
            true => path.relay(schedule, marking)?,
            false => path.run(schedule, marking)?,
        };
        (sent, arrivals, None)
    };
    Ok(Passage {
        sent,
        arrivals,
        counters: counters(&installed, topology::DEVICE)?,
        srt,
        ..Passage::default()
    })
}

/// Bulk TCP flows, with TCP-Real switched on where one of them is of it.
fn transferred(
    path: &Path,
    job: &Job<'_>,
    point: &Point,
    real: &mut Option<Switch>,
) -> Result<Passage> {
    let Model::Transfer(model) = point.model()? else {
        bail!("`tcp transfer` needs model = \"transfer\"");
    };
    let task = transfer::Task {
        model: &model,
        congestion: point.congestion,
        fading: point.fading.as_ref(),
        delay: point.owd_ms.ns(),
        duration: job.scenario.seconds * SECOND,
        discard: job.scenario.discard_ns(),
        seed: job.seed(),
    };
    let mode = task.kinds().into_iter().find_map(Congestion::real_mode);
    let switch = Switch::set(real, path, mode)?;
    let before = switch.map(Switch::counters).transpose()?;
    let mut transfer = transfer::run(path, &task)?;
    if let (Some(switch), Some(before)) = (switch, before) {
        transfer.real = Some(Real::between(&before, &switch.counters()?));
    }
    Ok(Passage {
        transfer: Some(transfer),
        ..Passage::default()
    })
}

/// What a queue without a kernel makes of it.
fn simulated(rule: &str, point: &Point, schedule: &Schedule, rate: u64) -> Result<Passage> {
    let rule = simulator::rule(rule).with_context(|| format!("no rule `{rule}`"))?;
    let owd = point.owd_ms.ns();
    let errors = simulator::Errors {
        rate: point.rate_error.0,
        owd: point.rtt_error.0,
    };
    let (sent, arrivals) = simulator::run(schedule, &Link::of_path(rate, owd), rule, errors);
    Ok(Passage {
        sent,
        arrivals,
        owd,
        ..Passage::default()
    })
}

fn not_on_this_kernel(why: String) -> String {
    format!("not on this kernel: {why}")
}

/// The loop over runs: `make` makes one, `keep` gets what becomes of it.
pub(super) fn make_with<'a>(
    jobs: &[Job<'a>],
    mut make: impl FnMut(&Job<'a>) -> Result<Outcome>,
    mut keep: impl FnMut(&Job<'a>, Outcome) -> Result<()>,
) -> Result<()> {
    let mut absent: BTreeMap<(&str, String), String> = BTreeMap::new();
    for job in jobs {
        let queue = (job.scenario.name.as_str(), job.cell.queue.name());
        let outcome = match absent.get(&queue) {
            Some(why) => Outcome::Absent(why.clone()),
            None => {
                let made = make(job);
                if cleanup::is_ending() {
                    cleanup::wait_for_the_end();
                }
                made.unwrap_or_else(|error| Outcome::Failed(format!("{error:#}")))
            }
        };
        if let Outcome::Absent(why) = &outcome {
            absent.insert(queue, why.clone());
        }
        keep(job, outcome)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Scenario;

    #[test]
    fn bench_simulated_queue_needs_no_path_and_gives_what_a_run_gives() {
        let text = "title = \"t\"\nqueues = [\"simulated triage\"]\n[topology]\nload = 1.5\nowd = 40\n\
                    [traffic]\nmodel = \"conference\"";
        let scenario = Scenario::of_text("t.toml".as_ref(), text).expect("a scenario");
        let job = Job {
            scenario: &scenario,
            cell: &scenario.cells[0],
            number: 0,
        };
        let outcome = Bench::default().run(&job).expect("a run");
        let Outcome::Made(run, packets) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!((run.owd_ms, run.measures.audio), (40.0, [1000, 1000]));
        let seen = records::seen(&packets).expect("packets");
        let arrived = seen.iter().filter(|packet| packet.on_time).count() as u64;
        assert_eq!(arrived, run.measures.audio[1] + run.measures.video[1]);
    }
}
