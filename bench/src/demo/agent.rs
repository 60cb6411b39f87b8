//! What an operator would type for the demo, and what bestby says of it.

use anyhow::Result;
use serde_json::{Value, json};

use super::{
    Lifetimes,
    relay::{AUDIO_PORT, VIDEO_PORT, dscp},
    rtp::Layer,
    world::{CLIENT, DEVICE, World},
};
use crate::bestby::Agent;

/// A running agent with the server's device attached.
#[derive(Debug)]
pub(super) struct Operator {
    agent: Agent,
    /// What was typed, for the report.
    commands: Vec<String>,
}

impl Operator {
    /// Starts `bestbyd` at the server, says what audio and video are worth, and
    /// attaches the server's device.
    pub(super) fn start(
        world: &World,
        rate_bit: u64,
        lifetimes: Lifetimes,
        marked_frames: bool,
    ) -> Result<Self> {
        let agent = Agent::start(&world.server, "demo")?;
        let commands = commands(rate_bit, lifetimes, marked_frames);
        for words in &commands {
            agent.bestby(words)?;
        }
        Ok(Self { agent, commands })
    }

    /// One-way delay to the client as bestby learnt it, ms; `None` before it has.
    pub(super) fn learnt_owd_ms(&self) -> Result<Option<f64>> {
        let sessions = self.agent.json("session ls")?;
        let mut peers = sessions["peers"].as_array().into_iter().flatten();
        Ok(peers
            .find(|peer| peer["addr"] == CLIENT)
            .and_then(|peer| peer["rtt"]["srtt_ns"].as_u64())
            .map(|srtt| srtt as f64 / 2e6))
    }

    /// `qdisc` or `tc`.
    pub(super) fn mode(&self) -> Result<String> {
        let interfaces = self.agent.json("iface ls")?;
        Ok(find(&interfaces, "mode")
            .and_then(Value::as_str)
            .unwrap_or("unknown")
            .to_owned())
    }

    /// What the agent says of the run: interfaces, sessions, counters.
    pub(super) fn report(&self) -> Result<Value> {
        Ok(json!({
            "commands": self.commands,
            "interfaces": self.agent.json("iface ls")?,
            "sessions": self.agent.json("session ls")?,
            "stats": self.agent.json("stats")?,
        }))
    }

    /// Detaches, and so shows that this works, too.
    pub(super) fn finish(self) -> Result<()> {
        self.agent
            .bestby(&format!("iface detach {DEVICE}"))
            .map(drop)
    }
}

/// The words behind `bestby`, one line per command.
fn commands(rate_bit: u64, lifetimes: Lifetimes, marked_frames: bool) -> Vec<String> {
    let (audio_ms, video_ms) = (
        lifetimes.audio_ns / 1_000_000,
        lifetimes.video_ns / 1_000_000,
    );
    let audio = format!("flow add audio --proto udp --dport {AUDIO_PORT}");
    let video = |name: &str| format!("flow add {name} --proto udp --dport {VIDEO_PORT}");
    let mut commands = vec![format!("{audio} --lifetime {audio_ms}ms --priority 0")];
    if marked_frames {
        for (name, layer, priority) in [
            ("video-needed", Layer::Reference, 3),
            ("video-rest", Layer::Disposable, 5),
        ] {
            commands.push(format!(
                "{} --dscp {} --lifetime {video_ms}ms --priority {priority}",
                video(name),
                dscp(layer)
            ));
        }
    } else {
        commands.push(format!(
            "{} --lifetime {video_ms}ms --priority 4",
            video("video")
        ));
    }
    commands.push(format!(
        "iface attach {DEVICE} --rate {}kbit",
        rate_bit / 1000
    ));
    commands
}

/// The first value of `key`, at any depth.
fn find<'a>(value: &'a Value, key: &str) -> Option<&'a Value> {
    match value {
        Value::Object(map) => map
            .get(key)
            .or_else(|| map.values().find_map(|v| find(v, key))),
        Value::Array(list) => list.iter().find_map(|v| find(v, key)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operator_needs_three_commands_or_four() {
        let lifetimes = Lifetimes {
            audio_ns: 200_000_000,
            video_ns: 300_000_000,
        };
        assert_eq!(
            commands(1_000_000, lifetimes, false),
            [
                "flow add audio --proto udp --dport 5004 --lifetime 200ms --priority 0",
                "flow add video --proto udp --dport 5006 --lifetime 300ms --priority 4",
                "iface attach bbd0 --rate 1000kbit",
            ]
        );
        let marked = commands(1_000_000, lifetimes, true);
        assert_eq!(marked.len(), 4);
        assert!(
            marked[2].contains("--dscp 38 --lifetime 300ms --priority 5"),
            "{}",
            marked[2]
        );
    }

    #[test]
    fn a_key_is_found_at_any_depth() {
        let list = json!([{"dev": "a", "mode": "tc"}]);
        assert_eq!(find(&list, "mode").unwrap(), "tc");
        let wrapped = json!({"x": 1, "interfaces": list});
        assert_eq!(find(&wrapped, "mode").unwrap(), "tc");
        assert!(find(&wrapped, "none").is_none());
    }
}
