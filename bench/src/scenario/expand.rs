//! From the axes of a file to its cells: all combinations, each with every queue.

use std::collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry};

use toml::Spanned;

use super::{
    Fault, File, Swept,
    cell::{Bottleneck, Cell, Control, Coordinate, LinkRate, Point, slug},
    check::unheard,
    traffic::Traffic,
    value::{Axis, Error, Lifetime, Millis, Percent},
};
use crate::{queue::Queue, tfrc::Restart, traffic::Class};

/// Cells of a file. Each is a run of a second at least: so many take longer than a day, and
/// more are a mistake.
const MOST_CELLS: u128 = 100_000;

/// What a file expands to.
#[derive(Debug)]
pub(super) struct Expansion {
    /// The axes that sweep.
    pub(super) axes: Vec<Swept>,
    /// In the order in which they are run: neighbours share a path.
    pub(super) cells: Vec<Cell>,
}

/// A combination under construction.
type Draft = (Point, Vec<Coordinate>);

/// Combinations so far, each multiplied by every further axis.
struct Drafts {
    axes: Vec<Swept>,
    all: Vec<Draft>,
}

impl Drafts {
    fn multiply<T: Clone + ToString>(
        &mut self,
        axis: &str,
        unit: &str,
        values: &[T],
        set: impl Fn(&mut Point, T),
    ) {
        let sweeps = values.len() > 1;
        if sweeps {
            self.axes.push(Swept {
                axis: axis.into(),
                unit: unit.into(),
                values: values.iter().map(T::to_string).collect(),
            });
        }
        if let [value] = values {
            for (point, _) in &mut self.all {
                set(point, value.clone());
            }
            return;
        }
        // Refused later, when all axes are known: `all` must not grow meanwhile.
        if self.all.len() as u128 * values.len() as u128 > MOST_CELLS {
            return;
        }
        let mut all = Vec::with_capacity(self.all.len() * values.len());
        for (point, coordinates) in &self.all {
            for value in values {
                let mut draft = (point.clone(), coordinates.clone());
                set(&mut draft.0, value.clone());
                if sweeps {
                    draft.1.push(Coordinate {
                        axis: axis.into(),
                        value: value.to_string(),
                    });
                }
                all.push(draft);
            }
        }
        self.all = all;
    }
}

fn values<T: Clone>(axis: &Option<Axis<T>>, default: T) -> Vec<T> {
    axis.as_ref()
        .map_or_else(|| vec![default], |axis| axis.0.clone())
}

fn told(errors: &Option<Spanned<Axis<Error>>>) -> Vec<Error> {
    let errors = errors.as_ref();
    errors.map_or_else(|| vec![Error(0.0)], |errors| errors.get_ref().0.clone())
}

/// Expands `file`, whose text is needed for the lines of errors.
pub(super) fn expand(file: &File, text: &str) -> Result<Expansion, Fault> {
    let topology = file.topology.get_ref();
    let router = topology.bottleneck == Bottleneck::Router;
    let (link_axis, link_unit, links): (_, _, Vec<LinkRate>) =
        match (&topology.rate, &topology.load) {
            (Some(rates), _) => (
                "rate",
                "bit/s",
                rates.0.iter().map(|&rate| LinkRate::Rate(rate)).collect(),
            ),
            (None, Some(loads)) => (
                "load",
                "",
                loads.0.iter().map(|&load| LinkRate::Load(load)).collect(),
            ),
            // `File::check` has refused this; no links, no cells.
            (None, None) => ("rate", "bit/s", Vec::new()),
        };
    let owds: Vec<Millis> = topology
        .owd
        .get_ref()
        .0
        .iter()
        .map(|owd| Millis(owd.0))
        .collect();
    let (Some(&link), Some(&owd)) = (links.first(), owds.first()) else {
        return Ok(Expansion {
            axes: Vec::new(),
            cells: Vec::new(),
        });
    };
    let mut drafts = Drafts {
        axes: Vec::new(),
        all: vec![(
            Point {
                bottleneck: topology.bottleneck,
                link,
                owd_ms: owd,
                loss_percent: Percent(0.0),
                router_queue: None,
                control: file.control,
                restart: Restart::default(),
                tcp: 0,
                lifetime: None,
                traffic: BTreeMap::new(),
                rtt_error: Error(0.0),
                rate_error: Error(0.0),
                stall: None,
            },
            Vec::new(),
        )],
    };
    // The path first: cells that share it stand together.
    drafts.multiply("owd", "ms", &owds, |p, v| p.owd_ms = v);
    drafts.multiply(
        "loss",
        "%",
        &values(&topology.loss, Percent(0.0)),
        |p, v| {
            p.loss_percent = v;
        },
    );
    drafts.multiply(link_axis, link_unit, &links, |p, v| p.link = v);
    if router {
        let queues: Vec<u32> = values(&topology.router_queue, super::FifoPackets::default())
            .iter()
            .map(|packets| packets.0)
            .collect();
        drafts.multiply("router_queue", "packets", &queues, |p, v| {
            p.router_queue = Some(v);
        });
        let flows: Vec<u32> = values(&topology.tcp, super::TcpFlows::default())
            .iter()
            .map(|flows| flows.0)
            .collect();
        drafts.multiply("tcp", "flows", &flows, |p, v| p.tcp = v);
    }
    if let Some(restarts) = &file.restart {
        drafts.multiply("restart", "", &restarts.get_ref().0, |p, v| {
            p.restart = v;
        });
    }
    if let Some(lifetimes) = &file.lifetime {
        drafts.multiply("lifetime", "ms", &lifetimes.get_ref().0, |p, v| {
            p.lifetime = Some(v);
        });
    }
    let traffic = Traffic::new(file, text);
    let of_traffic = traffic.axes()?;
    for (key, list) in &of_traffic {
        drafts.multiply(key, "", list, |p, v| {
            p.traffic.insert(key.clone(), v.0);
        });
    }
    let rtt_errors = told(&file.told.rtt_error);
    drafts.multiply("rtt_error", "", &rtt_errors, |p, v| p.rtt_error = v);
    let rate_errors = told(&file.told.rate_error);
    drafts.multiply("rate_error", "", &rate_errors, |p, v| p.rate_error = v);
    if let Some(stalls) = &file.stall {
        drafts.multiply("stall", "ms", &stalls.get_ref().0, |p, v| p.stall = Some(v));
    }
    let queues: Vec<&Queue> = file.queues.get_ref().iter().map(|name| &name.0).collect();
    check_count(&drafts.axes, &queues, router)?;
    let sent = traffic.classes(&of_traffic)?;
    if let (Some(lifetimes), Some(sent)) = (&file.lifetime, sent) {
        for lifetime in &lifetimes.get_ref().0 {
            check_lifetime(lifetime, &sent, lifetimes.span().start)?;
        }
    }

    let none = Error(0.0);
    let mut cells: Vec<Cell> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (point, coordinates) in drafts.all {
        for queue in &queues {
            let (mut point, mut axes) = (point.clone(), coordinates.clone());
            // Told nothing, it cannot be told anything wrong: one cell serves all values.
            for axis in unheard(queue, router) {
                match axis {
                    "rtt_error" => point.rtt_error = none,
                    _ => point.rate_error = none,
                }
                for coordinate in axes.iter_mut().filter(|c| c.axis == axis) {
                    coordinate.value = none.to_string();
                }
            }
            let mut id: Vec<String> = axes
                .iter()
                .map(|c| format!("{}={}", c.axis, slug(&c.value)))
                .collect();
            id.push(slug(&queue.name()));
            let cell = Cell {
                id: id.join("_"),
                point,
                axes,
                queue: (*queue).clone(),
            };
            match places.entry(cell.id.clone()) {
                Entry::Vacant(place) => {
                    place.insert(cells.len());
                    cells.push(cell);
                }
                Entry::Occupied(place) if cells.get(*place.get()) == Some(&cell) => {}
                Entry::Occupied(place) => {
                    return Err(Fault {
                        at: None,
                        message: format!(
                            "two combinations have the same id `{}`: name their values so that \
                             they differ in more than signs",
                            place.key()
                        ),
                    });
                }
            }
        }
    }
    check_relay(file, &cells)?;
    Ok(Expansion {
        axes: drafts.axes,
        cells,
    })
}

/// Refuses a relay's traffic, which has many receivers, where there can be only one.
fn check_relay(file: &File, cells: &[Cell]) -> Result<(), Fault> {
    let of_one = |cell: &Cell| {
        if file.stall.is_some() {
            Some("[stall]: the line that can stall has one end")
        } else if file.control != Control::None {
            Some("`control`: a congestion-controlled sender has one session")
        } else if matches!(cell.queue, Queue::Srt { .. }) {
            Some("`queues`: SRT is of one receiver")
        } else {
            None
        }
    };
    let is_relay = |cell: &Cell| cell.point.model().is_ok_and(|model| model.is_relay());
    let why = cells
        .iter()
        .find_map(|cell| of_one(cell).filter(|_| is_relay(cell)));
    match why {
        None => Ok(()),
        Some(why) => Err(Fault {
            at: Some(file.traffic.span().start),
            message: format!("[traffic]: a relay sends to many receivers; {why}"),
        }),
    }
}

/// Refuses more cells than a series can have, and says where they come from.
fn check_count(axes: &[Swept], queues: &[&Queue], router: bool) -> Result<(), Fault> {
    let of_queue = |queue: &&Queue| {
        let unheard = unheard(queue, router);
        axes.iter()
            .filter(|swept| !unheard.contains(&swept.axis.as_str()))
            .fold(1u128, |cells, swept| {
                cells.saturating_mul(swept.values.len() as u128)
            })
    };
    let cells = queues.iter().map(of_queue).fold(0, u128::saturating_add);
    if cells <= MOST_CELLS {
        return Ok(());
    }
    let mut factors: Vec<String> = axes
        .iter()
        .map(|swept| format!("{} ({})", swept.axis, swept.values.len()))
        .collect();
    factors.push(format!("queues ({})", queues.len()));
    Err(Fault {
        at: None,
        message: format!(
            "{} make {cells} cells, and each takes a run at least; at most {MOST_CELLS} are \
             allowed: shorten a list, or sweep fewer axes at once",
            factors.join(" × ")
        ),
    })
}

/// Refuses a lifetime for what is never sent.
fn check_lifetime(lifetime: &Lifetime, sent: &BTreeSet<Class>, at: usize) -> Result<(), Fault> {
    let Some(class) = lifetime.named().into_iter().find(|c| !sent.contains(c)) else {
        return Ok(());
    };
    let sent: Vec<&str> = sent.iter().map(|class| class.name()).collect();
    Err(Fault {
        at: Some(at),
        message: format!(
            "`lifetime`: `{lifetime}` names {}, but this traffic has {} only: leave {0} out",
            class.name(),
            sent.join(" and ")
        ),
    })
}
