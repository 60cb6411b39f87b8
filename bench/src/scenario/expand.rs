//! From the axes of a file to its cells: all combinations, each with every queue.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
};

use serde_json::Value;
use toml::Spanned;

use super::{
    cell::{self, Cell, Control, LinkRate, Point, Swept, slug},
    file::{Fault, File, fault},
    value::{Error, Load, Millis, Percent, Rate, Sweep, distinct},
};
use crate::{
    fading::Fading,
    program::Congestion,
    queue::Queue,
    tfrc::Restart,
    topology::{ROUTER_BURST, RouterQueue},
    traffic::{Class, Model},
};

/// Cells of a file. Each is a run of a second at least: so many take longer than a day, and
/// more are a mistake.
const MOST_CELLS: u128 = 100_000;

/// A combination under construction, and its places on the axes that sweep.
type Draft = (Point, Vec<(String, String)>);

/// Gives a point the value of this place in the list.
type Setter<'a> = Box<dyn Fn(&mut Point, usize) + 'a>;

/// The values of each field that is given, and where they go.
#[derive(Default)]
struct Axes<'a>(Vec<(Swept, Setter<'a>)>);

impl<'a> Axes<'a> {
    fn add<T: Clone + fmt::Display + 'a>(
        &mut self,
        axis: &str,
        unit: &str,
        values: Option<&Sweep<T>>,
        set: impl Fn(&mut Point, T) + 'a,
    ) {
        if let Some(sweep) = values {
            let swept = Swept {
                axis: axis.into(),
                unit: unit.into(),
                values: sweep.values.iter().map(T::to_string).collect(),
            };
            let values = sweep.values.clone();
            let set = Box::new(move |point: &mut Point, at: usize| set(point, values[at].clone()));
            self.0.push((swept, set));
        }
    }

    fn sweeping(&self) -> impl Iterator<Item = &Swept> {
        let all = self.0.iter().map(|axis| &axis.0);
        all.filter(|swept| swept.values.len() > 1)
    }

    /// All combinations, the first axis slowest.
    fn multiply(&self, first: Point) -> Vec<Draft> {
        let mut all = vec![(first, Vec::new())];
        for (swept, set) in &self.0 {
            let with = |(point, places): &Draft, at: usize| {
                let (mut point, mut places) = (point.clone(), places.clone());
                set(&mut point, at);
                if swept.values.len() > 1 {
                    places.push((swept.axis.clone(), swept.values[at].clone()));
                }
                (point, places)
            };
            let values = 0..swept.values.len();
            let each = |draft| values.clone().map(move |at| with(draft, at));
            all = all.iter().flat_map(each).collect();
        }
        all
    }
}

/// The axes of a file; the path's first, so that cells that share it stand together.
fn axes(file: &File) -> Result<Axes<'_>, Fault> {
    let (topology, told) = (file.topology.get_ref(), &file.told);
    let mut axes = Axes::default();
    axes.add("owd", "ms", Some(&topology.owd), |p, v| {
        p.owd_ms = Millis(v.0)
    });
    axes.add("loss", "%", topology.loss.as_ref(), |p, v| {
        p.loss_percent = v;
    });
    axes.add("rate", "bit/s", topology.rate.as_ref(), |p, v| {
        p.link = LinkRate::Rate(v);
    });
    axes.add("load", "", topology.load.as_ref(), |p, v| {
        p.link = LinkRate::Load(v);
    });
    axes.add("trace", "", topology.trace.as_ref(), |p, v| {
        p.link = LinkRate::Rate(Rate(v.rate()));
        p.trace = Some(v);
    });
    axes.add("burst", "bytes", topology.burst.as_ref(), |p, v| {
        p.burst = v.0 as u32;
    });
    if let Some(phases) = topology.fading.as_ref().map(Spanned::get_ref) {
        let [on, off] = [phases.on, phases.off].map(Millis::ns);
        axes.add("fading", "%", Some(&phases.loss), move |p, v| {
            p.fading = Some(Fading {
                loss: v.0,
                on,
                off,
                acks: false,
            });
        });
        axes.add("acks", "", phases.acks.as_ref(), |p, v| {
            if let Some(fading) = &mut p.fading {
                fading.acks = v;
            }
        });
    }
    let router = topology.router_queue.as_ref();
    axes.add("router_queue", "packets", router, |p, v| {
        p.router_queue = Some(v);
    });
    axes.add("tcp", "flows", topology.tcp.as_ref(), |p, v| {
        p.tcp = v.0 as u32;
    });
    axes.add("restart", "", file.restart.as_ref(), |p, v| p.restart = v);
    axes.add("congestion", "", file.congestion.as_ref(), |p, v| {
        p.congestion = v;
    });
    axes.add("undo", "", file.undo.as_ref(), |p, v| p.undo = v);
    axes.add("lifetime", "ms", file.lifetime.as_ref(), |p, v| {
        p.lifetime = Some(v);
    });
    for (key, value) in file.traffic.get_ref() {
        let (name, at) = (key.get_ref(), key.span().start);
        let values = parameters(file, name, value)
            .map_err(|message| fault(at, format!("[traffic] `{name}`: {message}")))?;
        axes.add(name, "", Some(&Sweep { values, at }), |p, v| {
            p.traffic.insert(name.clone(), v.0);
        });
    }
    axes.add("rtt_error", "", told.rtt_error.as_ref(), |p, v| {
        p.rtt_error = v;
    });
    axes.add("rate_error", "", told.rate_error.as_ref(), |p, v| {
        p.rate_error = v;
    });
    axes.add("stall", "ms", file.stall.as_ref(), |p, v| p.stall = Some(v));
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
    let models = match file.traffic.get_ref().get("model") {
        Some(toml::Value::Array(models)) => models.as_slice(),
        Some(model) => std::slice::from_ref(model),
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
    let all = axes.multiply(Point {
        bottleneck: topology.bottleneck,
        link: LinkRate::Load(Load(1.0)),
        owd_ms: Millis(topology.owd.values[0].0),
        loss_percent: Percent(0.0),
        fading: None,
        burst: ROUTER_BURST,
        router_queue: file.router().then_some(RouterQueue::Fifo(50)),
        control: file.control,
        restart: Restart::default(),
        congestion: Congestion::default(),
        trace: None,
        device: topology.device.unwrap_or_default(),
        option: file.option,
        undo: true,
        tcp: 0,
        lifetime: None,
        traffic: BTreeMap::new(),
        rtt_error: Error(0.0),
        rate_error: Error(0.0),
        stall: None,
    });
    check_traffic(file, &all)?;

    let mut cells: Vec<Cell> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for (point, coordinates) in all {
        for queue in queues {
            let cell = cell(file, point.clone(), coordinates.clone(), queue);
            match places.get(&cell.id).map(|&place| cells[place] == cell) {
                Some(true) => {}
                Some(false) => {
                    let message = format!(
                        "two combinations have the same id `{}`: name their values so that \
                         they differ in more than signs",
                        cell.id
                    );
                    return Err(fault(file.title.span().start, message));
                }
                None => {
                    places.insert(cell.id.clone(), cells.len());
                    cells.push(cell);
                }
            }
        }
    }
    Ok((axes.sweeping().cloned().collect(), cells))
}

/// A queue that is told nothing cannot be told anything wrong: one cell serves all values.
fn cell(file: &File, mut point: Point, mut axes: Vec<(String, String)>, queue: &Queue) -> Cell {
    for axis in ["rtt_error", "rate_error"] {
        if file.hears(queue, axis) {
            continue;
        }
        match axis {
            "rtt_error" => point.rtt_error = Error(0.0),
            _ => point.rate_error = Error(0.0),
        }
        for (_, value) in axes.iter_mut().filter(|place| place.0 == axis) {
            *value = Error(0.0).to_string();
        }
    }
    let place = |(axis, value): &(String, String)| format!("{axis}={}", slug(value));
    let places = axes.iter().map(place);
    let id: Vec<String> = places.chain([slug(&queue.name())]).collect();
    Cell {
        id: id.join("_"),
        point,
        axes,
        queue: queue.clone(),
    }
}

/// Refuses more cells than a series can have, and says where they come from.
fn check_count(axes: &Axes<'_>, queues: usize) -> Result<(), Fault> {
    let factors = axes
        .sweeping()
        .map(|axis| (axis.axis.as_str(), axis.values.len()));
    let factors: Vec<_> = factors.chain([("queues", queues)]).collect();
    let product = |cells: u128, factor: &(&str, usize)| cells.saturating_mul(factor.1 as u128);
    let cells = factors.iter().fold(1, product);
    if cells <= MOST_CELLS {
        return Ok(());
    }
    let named = factors
        .iter()
        .map(|(axis, values)| format!("{axis} ({values})"));
    let named = named.collect::<Vec<_>>().join(" × ");
    let message = format!(
        "{named} make {cells} cells, and each takes a run at least; at most {MOST_CELLS} are \
         allowed: shorten a list, or sweep fewer axes at once"
    );
    Err(Fault { at: None, message })
}

/// Checks the traffic of every combination, and whether the file's other fields fit to it.
fn check_traffic(file: &File, all: &[Draft]) -> Result<(), Fault> {
    // What the packets may be; None where only a capture's content tells.
    let mut classes = Some(BTreeSet::new());
    let mut seen = BTreeSet::new();
    for (point, _) in all {
        if !seen.insert(format!("{:?} {:?}", point.traffic, point.congestion)) {
            continue;
        }
        let model = model(&point.traffic).map_err(|message| {
            let (at, name) = culprit(file, &point.traffic, &message);
            let message = format!("[traffic]{name}: {message}: see docs/traffic.md");
            fault(at, message)
        })?;
        if file.control == Control::Tcp && !matches!(model, Model::Download(_)) {
            let why = "[traffic]: control = \"tcp\" needs model = \"download\"";
            return Err(fault(file.traffic.span().start, why));
        }
        check_transfer(file, point, &model)?;
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
        if let Some(class) = lifetime.named().find(|c| !sent.contains(c)) {
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

/// Bulk TCP is a model and a program that need each other.
fn check_transfer(file: &File, point: &Point, model: &Model) -> Result<(), Fault> {
    let at = file.traffic.span().start;
    let Model::Transfer(parameters) = model else {
        let why = "[traffic]: `tcp transfer` needs model = \"transfer\"";
        return match file.is_transfer() {
            true => Err(fault(at, why)),
            false => Ok(()),
        };
    };
    if !file.is_transfer() || file.queues.get_ref().len() > 1 {
        let why = "[traffic]: model = \"transfer\" needs queues = [\"tcp transfer\"]";
        return Err(fault(at, why));
    }
    let modes = parameters.beside.iter().chain([&point.congestion]);
    let modes: Vec<_> = modes.filter_map(|kind| kind.real_mode()).collect();
    if modes.windows(2).any(|pair| pair[0] != pair[1]) {
        let why =
            "[traffic] `beside`: one run has \"real\" or \"real paper\", for TCP-Real has one mode";
        return Err(fault(at, why));
    }
    let (seconds, stagger) = (file.seconds(), parameters.stagger_ms);
    parameters
        .check_starts(seconds)
        .map_err(|error| fault(at, format!("[traffic] `stagger_ms` = {stagger}: {error:#}")))
}

fn model(traffic: &BTreeMap<String, Value>) -> Result<Model, String> {
    let model = cell::model(traffic).map_err(|error| error.to_string())?;
    model.check().map_err(|error| format!("{error:#}"))?;
    Ok(model)
}

/// Where the parameter of which `message` is stands, and what it is. Serde does not say: it
/// is the one without which the message is another.
fn culprit(file: &File, traffic: &BTreeMap<String, Value>, message: &str) -> (usize, String) {
    let to_blame = |name: &String| {
        let mut others = traffic.clone();
        others.remove(name);
        model(&others).err().as_deref() != Some(message)
    };
    let mut given: Vec<_> = file.traffic.get_ref().keys().collect();
    given.sort_by_key(|key| key.get_ref() == "model");
    match given.into_iter().find(|key| to_blame(key.get_ref())) {
        None => (file.traffic.span().start, String::new()),
        Some(key) => {
            let name = key.get_ref();
            let value = Parameter(traffic[name].clone());
            (key.span().start, format!(" `{name}` = {value}"))
        }
    }
}

/// Why the traffic can have one receiver only, if it can.
fn of_one_receiver(file: &File) -> Option<&'static str> {
    let is = |kind: fn(&Queue) -> bool| file.queues.get_ref().iter().any(kind);
    let srt = is(|queue| matches!(queue, Queue::Srt { .. }));
    let simulated = is(|queue| matches!(queue, Queue::Simulated(_)));
    let controlled = "`control`: a congestion-controlled sender has one session";
    let stalls = "a line has one end";
    let reasons = [
        (file.stall.is_some() || file.line(), stalls),
        (file.control != Control::None, controlled),
        (srt, "`queues`: SRT is of one receiver"),
        (simulated, "`queues`: what is simulated is one session"),
    ];
    reasons.into_iter().find(|(is, _)| *is).map(|(_, why)| why)
}
