//! One run on real namespaces: the path, the queue, the traffic, what came of it.

use std::{collections::BTreeMap, rc::Rc, time::Instant};

use anyhow::{Context as _, Result, ensure};

use super::{
    controlled::{self, Controlled},
    job::{self, Job},
    passage::{Passage, counters},
    run::{Outcome, Run},
    stalled,
};
use crate::{
    bestby::Agent,
    bound::Link,
    cleanup,
    competing::{Competitor, Running},
    dccp, measure,
    queue::{self, Installed, Queue, Told},
    records,
    scenario::cell::{Bottleneck, Control, Point},
    simulator, srt,
    sys::SECOND,
    topology::{self, Path, Shape},
    traffic::{Schedule, sender::Sent},
};

/// Makes runs. The series does not know how, so that its own tests need no namespaces.
pub(super) trait Runner {
    /// Makes one run.
    fn run(&mut self, job: &Job<'_>) -> Result<Outcome>;
}

/// Makes runs in namespaces; keeps the path, and bestby's agent on it, from one run to
/// the next.
#[derive(Debug, Default)]
pub(super) struct Bench {
    /// In the path's namespace: ends first.
    agent: Option<Rc<Agent>>,
    competitor: Option<Competitor>,
    path: Option<(Shape, Path)>,
}

impl Runner for Bench {
    fn run(&mut self, job: &Job<'_>) -> Result<Outcome> {
        let began = Instant::now();
        if job.cell.point.control == Control::Dccp
            && let Some(why) = dccp::missing()
        {
            return Ok(Outcome::Absent(not_on_this_kernel(why)));
        }
        if matches!(job.cell.queue, Queue::Srt { .. })
            && let Some(why) = srt::missing()
        {
            return Ok(Outcome::Absent(format!("not on this machine: {why}")));
        }
        let (scenario, point) = (job.scenario, &job.cell.point);
        let schedule = point.schedule(scenario.seconds, job.seed())?;
        let offered = schedule.load();
        let rate = point.link.of(offered).0;
        ensure!(
            (8_000..=10_000_000_000).contains(&rate),
            "load {} of {offered:.0} bit/s asks for a link of {rate} bit/s: possible are \
             8 kbit/s to 10 Gbit/s",
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
                (self.agent, self.competitor, self.path) = (None, None, None);
                return queue::not_on_this_kernel(&error)
                    .map(|why| Outcome::Absent(not_on_this_kernel(why)))
                    .ok_or(error);
            }
        };
        let Passage {
            sent,
            arrivals,
            extra_delay,
            owd,
            counters,
            srt,
            tfrc,
            tail_drops,
            tcp_bytes,
        } = passage;
        let discard = (scenario.discard_first * SECOND as f64).round() as u64;
        let mut measures = measure::judge(&schedule, &sent, &arrivals, extra_delay, discard);
        measures.counters = counters;
        measures.srt = srt;
        measures.tfrc = tfrc;
        measures.tail_drops = tail_drops;
        measures.tcp_share =
            tcp_bytes.and_then(|tcp| measure::tcp_share(tcp, measures.received_bytes));
        let packets = records::packets(&schedule, &sent, &arrivals, extra_delay);
        let run = Run {
            number: job.number,
            seed: job.seed(),
            rate,
            load: offered / rate as f64,
            owd_ms: owd as f64 / 1e6,
            delay_is_real: extra_delay == 0,
            measures,
            bound: None,
            false_drops: None,
            took_s: began.elapsed().as_secs_f64(),
        };
        Ok(Outcome::Made(Box::new(run), packets))
    }
}

impl Bench {
    fn build(&mut self, shape: Shape) -> Result<()> {
        if self.path.as_ref().is_none_or(|(old, _)| *old != shape) {
            // The old one first: both have namespaces of the same names.
            self.agent = None;
            self.competitor = None;
            self.path = None;
            let path = Path::build(shape).context("building the path")?;
            self.path = Some((shape, path));
        }
        Ok(())
    }

    fn pass(&mut self, job: &Job<'_>, schedule: &Schedule, rate: u64) -> Result<Passage> {
        let (queue, point) = (&job.cell.queue, &job.cell.point);
        self.build(job::shape(point))?;
        let (_, path) = self.path.as_ref().context("the path is gone")?;
        if let Some(packets) = point.router_queue {
            path.set_router(rate, packets)?;
        }
        let relays = point.model()?.is_relay();
        let tcp = controlled::compete(&mut self.competitor, path, point)?;
        let discard = (job.scenario.discard_first * SECOND as f64).round() as u64;
        let tcp_bytes = |tcp: Option<Running>, sent: &Sent| {
            tcp.map(|running| controlled::delivered(running, sent, schedule, discard))
                .transpose()
        };
        if point.control != Control::None {
            let controlled = match (point.control, queue) {
                (Control::Dccp, Queue::Pfifo(packets)) => {
                    let outcome = dccp::run(path, schedule, *packets as usize)?;
                    Controlled {
                        sent: outcome.sent,
                        arrivals: outcome.arrivals,
                        counters: None,
                        tfrc: None,
                        tail_drops: Some(outcome.refused),
                    }
                }
                _ => {
                    let restart = point.restart;
                    controlled::pass(path, queue, schedule, restart, discard, &mut self.agent)?
                }
            };
            return Ok(Passage {
                tcp_bytes: tcp_bytes(tcp, &controlled.sent)?,
                sent: controlled.sent,
                arrivals: controlled.arrivals,
                extra_delay: path.extra_delay,
                owd: path.owd,
                counters: controlled.counters,
                srt: None,
                tfrc: controlled.tfrc,
                tail_drops: controlled.tail_drops,
            });
        }
        let receivers = if relays {
            topology::clients(schedule.streams())
        } else {
            vec![topology::RECEIVER]
        };
        let owd = (path.owd as f64 * (1.0 + point.rtt_error.0)).round() as u64;
        let wrong = 1.0 + point.rate_error.0;
        let told = match point.bottleneck {
            Bottleneck::Sender => Told {
                rate,
                session_rate: (point.rate_error.0 != 0.0)
                    .then(|| (rate as f64 * wrong / receivers.len() as f64).round() as u64),
                owd,
                receivers: &receivers,
            },
            Bottleneck::Router => Told {
                rate: (rate as f64 * wrong).round() as u64,
                session_rate: None,
                owd,
                receivers: &receivers,
            },
        };
        let ns = path.sender();
        let installed = Installed::sharing(queue, ns, topology::DEVICE, &told, &mut self.agent)
            .with_context(|| format!("installing {queue} at {rate} bit/s"))?;
        let marking = queue.marking(owd);
        let (sent, arrivals, srt) = if let Queue::Srt { paced } = queue {
            let settings = srt::Settings::new(schedule, told.rate, owd, *paced)?;
            let outcome = srt::run(path, schedule, &settings, point.loss_percent.0 > 0.0)?;
            (outcome.sent, outcome.arrivals, Some(outcome.counters))
        } else if relays {
            let (sent, arrivals) = path.relay(schedule, marking)?;
            (sent, arrivals, None)
        } else {
            let (sent, arrivals) = path.run(schedule, marking)?;
            (sent, arrivals, None)
        };
        Ok(Passage {
            tcp_bytes: tcp_bytes(tcp, &sent)?,
            sent,
            arrivals,
            extra_delay: path.extra_delay,
            owd: path.owd,
            counters: counters(&installed, topology::DEVICE)?,
            srt,
            tfrc: None,
            tail_drops: None,
        })
    }
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
        extra_delay: 0,
        owd,
        counters: None,
        srt: None,
        tfrc: None,
        tail_drops: None,
        tcp_bytes: None,
    })
}

fn not_on_this_kernel(why: String) -> String {
    format!("not on this kernel: {why}")
}

/// The loop over runs; `keep` gets what becomes of each.
pub(super) fn make_with<'a>(
    runner: &mut impl Runner,
    jobs: &[Job<'a>],
    mut keep: impl FnMut(&Job<'a>, Outcome) -> Result<()>,
) -> Result<()> {
    let mut absent: BTreeMap<(&str, String), String> = BTreeMap::new();
    for job in jobs {
        let queue = (job.scenario.name.as_str(), job.cell.queue.name());
        let outcome = match absent.get(&queue) {
            Some(why) => Outcome::Absent(why.clone()),
            None => {
                let made = runner.run(job);
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
        let scenario = Scenario::of_text("t", text).expect("a scenario");
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
