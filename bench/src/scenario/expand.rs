//! From the axes of a file to its cells: all combinations, each with every queue.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    fmt,
};

use serde::Deserialize as _;
use serde_json::Value;

use super::{
    cell::{Cell, Control, Coordinate, LinkRate, Point, Swept, slug},
    file::{Fault, File, fault},
    value::{Error, FifoPackets, Percent, Sweep, TcpFlows, distinct},
};
use crate::{
    queue::Queue,
    tfrc::Restart,
    traffic::{Class, Model},
};

/// Cells of a file. Each is a run of a second at least: so many take longer than a day, and
/// more are a mistake.
const MOST_CELLS: u128 = 100_000;

/// A combination under construction.
type Draft = (Point, Vec<Coordinate>);

/// Gives a point the value of this place in the list.
type Setter<'a> = Box<dyn Fn(&mut Point, usize) + 'a>;

/// The values of one field, and where they go.
struct Axis<'a> {
    swept: Swept,
    set: Setter<'a>,
}

impl<'a> Axis<'a> {
    fn new<T: Clone + fmt::Display + 'a>(
        axis: &str,
        unit: &str,
        values: Vec<T>,
        set: impl Fn(&mut Point, T) + 'a,
    ) -> Self {
        Self {
            swept: Swept {
                axis: axis.into(),
                unit: unit.into(),
                values: values.iter().map(T::to_string).collect(),
            },
            set: Box::new(move |point, value| set(point, values[value].clone())),
        }
    }

    fn sweeps(&self) -> bool {
        self.swept.values.len() > 1
    }

    /// Each combination so far with each value.
    fn multiply(&self, all: &[Draft]) -> Vec<Draft> {
        let with = |(point, coordinates): &Draft, value: usize| {
            let (mut point, mut coordinates) = (point.clone(), coordinates.clone());
            (self.set)(&mut point, value);
            if self.sweeps() {
                coordinates.push(Coordinate {
                    axis: self.swept.axis.clone(),
                    value: self.swept.values[value].clone(),
                });
            }
            (point, coordinates)
        };
        let values = 0..self.swept.values.len();
        all.iter()
            .flat_map(|draft| values.clone().map(|value| with(draft, value)))
            .collect()
    }
}

fn or<T: Clone>(sweep: &Option<Sweep<T>>, default: T) -> Vec<T> {
    sweep
        .as_ref()
        .map_or_else(|| vec![default], |sweep| sweep.values.clone())
}

/// The axes of a file; the path's first, so that cells that share it stand together.
fn axes(file: &File) -> Result<Vec<Axis<'_>>, Fault> {
    let topology = file.topology.get_ref();
    let mut axes = vec![
        Axis::new("owd", "ms", topology.owd.values.clone(), |p, v| {
            p.owd_ms = v
        }),
        Axis::new("loss", "%", or(&topology.loss, Percent(0.0)), |p, v| {
            p.loss_percent = v;
        }),
    ];
    if let Some(rates) = &topology.rate {
        axes.push(Axis::new("rate", "bit/s", rates.values.clone(), |p, v| {
            p.link = LinkRate::Rate(v);
        }));
    }
    if let Some(loads) = &topology.load {
        axes.push(Axis::new("load", "", loads.values.clone(), |p, v| {
            p.link = LinkRate::Load(v);
        }));
    }
    if file.router() {
        let packets = or(&topology.router_queue, FifoPackets(50));
        axes.push(Axis::new("router_queue", "packets", packets, |p, v| {
            p.router_queue = Some(v.0 as u32);
        }));
        let flows = or(&topology.tcp, TcpFlows(0));
        axes.push(Axis::new("tcp", "flows", flows, |p, v| p.tcp = v.0 as u32));
    }
    let restarts = or(&file.restart, Restart::default());
    axes.push(Axis::new("restart", "", restarts, |p, v| p.restart = v));
    if let Some(lifetimes) = &file.lifetime {
        axes.push(Axis::new(
            "lifetime",
            "ms",
            lifetimes.values.clone(),
            |p, v| {
                p.lifetime = Some(v);
            },
        ));
    }
    for (key, value) in file.traffic.get_ref() {
        let name = key.get_ref();
        let values = parameters(file, name, value)
            .map_err(|message| fault(key.span().start, format!("[traffic] `{name}`: {message}")))?;
        axes.push(Axis::new(name, "", values, |p, v| {
            p.traffic.insert(name.clone(), v.0);
        }));
    }
    let errors = or(&file.told.rtt_error, Error(0.0));
    axes.push(Axis::new("rtt_error", "", errors, |p, v| p.rtt_error = v));
    let errors = or(&file.told.rate_error, Error(0.0));
    axes.push(Axis::new("rate_error", "", errors, |p, v| p.rate_error = v));
    if let Some(stalls) = &file.stall {
        axes.push(Axis::new("stall", "ms", stalls.values.clone(), |p, v| {
            p.stall = Some(v);
        }));
    }
    Ok(axes)
}

/// A model's parameter as one value of an axis.
#[derive(Clone)]
struct Parameter(Value);

impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Value::String(text) => text.fmt(f),
            other => other.fmt(f),
        }
    }
}

/// The values of a model's parameter. One that is a list itself sweeps as a list of lists.
fn parameters(file: &File, name: &str, value: &toml::Value) -> Result<Vec<Parameter>, String> {
    let models = file
        .traffic
        .get_ref()
        .iter()
        .find(|(key, _)| key.get_ref() == "model");
    let models = match models {
        Some((_, toml::Value::Array(models))) => models.as_slice(),
        Some((_, model)) => std::slice::from_ref(model),
        None => &[],
    };
    let mut names = models.iter().filter_map(toml::Value::as_str);
    let is_list = names.any(|model| Model::lists(model).contains(&name));
    let values = match value {
        toml::Value::Array(list) if !is_list => list.as_slice(),
        toml::Value::Array(list) if !list.is_empty() && list.iter().all(toml::Value::is_array) => {
            list.as_slice()
        }
        single => std::slice::from_ref(single),
    };
    let values: Vec<Parameter> = values
        .iter()
        .map(|value| serde_json::to_value(value).map(Parameter))
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    distinct(&values)?;
    Ok(values)
}

/// The axes of `file` that sweep, and its cells in the order in which they are run:
/// neighbours share a path.
pub(super) fn expand(file: &File) -> Result<(Vec<Swept>, Vec<Cell>), Fault> {
    let axes = axes(file)?;
    let queues = file.queues.get_ref();
    check_count(&axes, queues.len())?;
    let topology = file.topology.get_ref();
    let first = Point {
        bottleneck: topology.bottleneck,
        link: LinkRate::Load(super::value::Load(1.0)),
        owd_ms: topology.owd.values[0],
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
    };
    let all = axes
        .iter()
        .fold(vec![(first, Vec::new())], |all, axis| axis.multiply(&all));
    check_traffic(file, &all)?;

    let mut cells: Vec<Cell> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (point, coordinates) in all {
        for queue in queues {
            let cell = cell(file, point.clone(), coordinates.clone(), queue);
            match places.entry(cell.id.clone()) {
                Entry::Vacant(place) => {
                    place.insert(cells.len());
                    cells.push(cell);
                }
                Entry::Occupied(place) if cells[*place.get()] == cell => {}
                Entry::Occupied(place) => {
                    return Err(fault(
                        file.title.span().start,
                        format!(
                            "two combinations have the same id `{}`: name their values so that \
                             they differ in more than signs",
                            place.key()
                        ),
                    ));
                }
            }
        }
    }
    let swept = axes.into_iter().filter(Axis::sweeps);
    Ok((swept.map(|axis| axis.swept).collect(), cells))
}

/// A queue that is told nothing cannot be told anything wrong: one cell serves all values.
fn cell(file: &File, mut point: Point, mut axes: Vec<Coordinate>, queue: &Queue) -> Cell {
    for axis in ["rtt_error", "rate_error"] {
        if file.hears(queue, axis) {
            continue;
        }
        match axis {
            "rtt_error" => point.rtt_error = Error(0.0),
            _ => point.rate_error = Error(0.0),
        }
        for coordinate in axes.iter_mut().filter(|c| c.axis == axis) {
            coordinate.value = Error(0.0).to_string();
        }
    }
    let places = axes
        .iter()
        .map(|c| format!("{}={}", c.axis, slug(&c.value)));
    let id: Vec<String> = places.chain([slug(&queue.name())]).collect();
    Cell {
        id: id.join("_"),
        point,
        axes,
        queue: queue.clone(),
    }
}

/// Refuses more cells than a series can have, and says where they come from.
fn check_count(axes: &[Axis<'_>], queues: usize) -> Result<(), Fault> {
    let factors = || {
        axes.iter()
            .filter(|axis| axis.sweeps())
            .map(|axis| &axis.swept)
    };
    let cells = factors().fold(queues as u128, |cells, axis| {
        cells.saturating_mul(axis.values.len() as u128)
    });
    if cells <= MOST_CELLS {
        return Ok(());
    }
    let named = factors().map(|axis| format!("{} ({})", axis.axis, axis.values.len()));
    let named: Vec<String> = named.chain([format!("queues ({queues})")]).collect();
    Err(Fault {
        at: None,
        message: format!(
            "{} make {cells} cells, and each takes a run at least; at most {MOST_CELLS} are \
             allowed: shorten a list, or sweep fewer axes at once",
            named.join(" × ")
        ),
    })
}

/// Checks the traffic of every combination, and whether the file's other fields fit to it.
fn check_traffic(file: &File, all: &[Draft]) -> Result<(), Fault> {
    // What the packets may be; None where only a capture's content tells.
    let mut classes = Some(BTreeSet::new());
    let mut seen = BTreeSet::new();
    for (point, _) in all {
        if !seen.insert(format!("{:?}", point.traffic)) {
            continue;
        }
        let model = model(&point.traffic).map_err(|message| {
            let (at, name) = culprit(file, &point.traffic, &message);
            fault(
                at,
                format!("[traffic]{name}: {message}: see docs/traffic.md"),
            )
        })?;
        let own = model.classes();
        classes = classes.zip(own).map(|(all, own)| &all | &own);
        if let Some(why) = of_one_receiver(file).filter(|_| model.is_relay()) {
            let message = format!("[traffic]: a relay sends to many receivers; {why}");
            return Err(fault(file.traffic.span().start, message));
        }
    }
    let (Some(lifetimes), Some(sent)) = (&file.lifetime, classes) else {
        return Ok(());
    };
    for lifetime in &lifetimes.values {
        if let Some(class) = lifetime.named().into_iter().find(|c| !sent.contains(c)) {
            let sent: Vec<&str> = sent.iter().map(|class: &Class| class.name()).collect();
            let message = format!(
                "`lifetime`: `{lifetime}` names {0}, but this traffic has {1} only: leave {0} out",
                class.name(),
                sent.join(" and ")
            );
            return Err(fault(lifetimes.at, message));
        }
    }
    Ok(())
}

fn model(traffic: &BTreeMap<String, Value>) -> Result<Model, String> {
    let whole: Value = traffic.clone().into_iter().collect();
    let model = Model::deserialize(whole).map_err(|error| error.to_string())?;
    match model.check() {
        Ok(()) => Ok(model),
        Err(error) => Err(format!("{error:#}")),
    }
}

/// Where the parameter of which `message` is stands, and what it is. Serde does not say: it
/// is the one without which the message is another.
fn culprit(file: &File, traffic: &BTreeMap<String, Value>, message: &str) -> (usize, String) {
    let to_blame = |name: &String| {
        let mut others = traffic.clone();
        others.remove(name);
        model(&others).err().as_deref() != Some(message)
    };
    let given = || file.traffic.get_ref().iter();
    let others = given().filter(|(key, _)| key.get_ref() != "model");
    let model = given().filter(|(key, _)| key.get_ref() == "model");
    let mut found = others.chain(model);
    match found.find(|(key, _)| to_blame(key.get_ref())) {
        None => (file.traffic.span().start, String::new()),
        Some((key, _)) => {
            let name = key.get_ref();
            let value = Parameter(traffic[name].clone());
            (key.span().start, format!(" `{name}` = {value}"))
        }
    }
}

/// Why the traffic can have one receiver only, if it can.
fn of_one_receiver(file: &File) -> Option<&'static str> {
    let is = |kind: fn(&Queue) -> bool| file.queues.get_ref().iter().any(kind);
    if file.stall.is_some() {
        Some("[stall]: the line that can stall has one end")
    } else if file.control != Control::None {
        Some("`control`: a congestion-controlled sender has one session")
    } else if is(|queue| matches!(queue, Queue::Srt { .. })) {
        Some("`queues`: SRT is of one receiver")
    } else if is(|queue| matches!(queue, Queue::Simulated(_))) {
        Some("`queues`: what is simulated is one session")
    } else {
        None
    }
}
