//! `bestby flow`: flow rules.

use std::process::ExitCode;

use bestby_api::{
    CgroupPath, Chain, Counters, DevName, Dscp, FlowAdd, FlowInfo, FlowLifetime, FlowName,
    FlowPatch, FlowRule, FlowSet, Frames, MarkMask, Media, Owd, PayloadTypes, PortRange, Prefix,
    Priority, Proto, Retransmissions, Roles, RtpKind, Ssrc, Stamp, Treatment, path,
};
use clap::{Args, Subcommand};
use hyper::Method;

use crate::client::{Client, part};
use crate::failure::Failure;
use crate::format::{bytes, or_dash};
use crate::output::Output;
use crate::setting::{Setting, change, setting, value};
use crate::stats::drop_reasons;
use crate::table::Table;

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Add a rule at the end of the list, or in front of another
    #[command(mut_arg("lifetime", |a| a.required(true)))]
    Add {
        /// Name of the new rule
        #[arg(value_parser = value::<FlowName>)]
        name: FlowName,
        #[command(flatten)]
        fields: Fields,
        /// Put it in front of this rule: the first matching rule wins
        #[arg(long, value_name = "NAME", value_parser = value::<FlowName>)]
        before: Option<FlowName>,
        /// Write it to the configuration file, too
        #[arg(long)]
        save: bool,
    },
    /// Change a rule; fields not named stay, `none` takes a field away
    Set {
        /// Name of the rule
        #[arg(value_parser = value::<FlowName>)]
        name: FlowName,
        #[command(flatten)]
        fields: Fields,
        /// Write it to the configuration file, too
        #[arg(long)]
        save: bool,
    },
    /// Remove a rule
    Rm {
        /// Name of the rule
        #[arg(value_parser = value::<FlowName>)]
        name: FlowName,
        /// Remove it from the configuration file, too
        #[arg(long)]
        save: bool,
    },
    /// List the rules in the order in which they are tried
    Ls,
    /// Show one rule and what it did
    Show {
        /// Name of the rule
        #[arg(value_parser = value::<FlowName>)]
        name: FlowName,
    },
}

/// What a rule matches (a field not given matches everything) and what the packets are worth.
#[derive(Debug, Args)]
pub(crate) struct Fields {
    /// Transport protocol
    #[arg(long, value_name = "udp|tcp", help_heading = "Match", value_parser = setting::<Proto>)]
    proto: Option<Setting<Proto>>,
    /// Source address or network
    #[arg(long, value_name = "PREFIX", help_heading = "Match", value_parser = setting::<Prefix>)]
    src: Option<Setting<Prefix>>,
    /// Destination address or network
    #[arg(long, value_name = "PREFIX", help_heading = "Match", value_parser = setting::<Prefix>)]
    dst: Option<Setting<Prefix>>,
    /// Source port or range
    #[arg(long, value_name = "P[-P]", help_heading = "Match", value_parser = setting::<PortRange>)]
    sport: Option<Setting<PortRange>>,
    /// Destination port or range
    #[arg(long, value_name = "P[-P]", help_heading = "Match", value_parser = setting::<PortRange>)]
    dport: Option<Setting<PortRange>>,
    /// Differentiated services code point: a number, or a name such as ef or af41
    #[arg(long, value_name = "D", help_heading = "Match", value_parser = setting::<Dscp>)]
    dscp: Option<Setting<Dscp>>,
    /// Bits of the packet mark
    #[arg(long, value_name = "M/MASK", help_heading = "Match", value_parser = setting::<MarkMask>)]
    mark: Option<Setting<MarkMask>>,
    /// RTP payload types, e.g. 111 or 96,98
    #[arg(long, value_name = "PT[,PT...]", help_heading = "Match", allow_hyphen_values = true, value_parser = setting::<PayloadTypes>)]
    rtp_pt: Option<Setting<PayloadTypes>>,
    /// RTP payload types that RFC 3551 or [rtp_profile] of the configuration file calls audio or video
    #[arg(long, value_name = "audio|video", help_heading = "Match", value_parser = setting::<RtpKind>)]
    rtp_kind: Option<Setting<RtpKind>>,
    /// RTP synchronization source, decimal or 0x and hexadecimal
    #[arg(long, value_name = "N", help_heading = "Match", allow_hyphen_values = true, value_parser = setting::<Ssrc>)]
    ssrc: Option<Setting<Ssrc>>,
    /// cgroup of the sending socket, or one above it
    #[arg(long, value_name = "PATH", help_heading = "Match", value_parser = setting::<CgroupPath>)]
    cgroup: Option<Setting<CgroupPath>>,
    /// Interface the packet leaves by
    #[arg(long, value_name = "DEV", help_heading = "Match", value_parser = setting::<DevName>)]
    dev: Option<Setting<DevName>>,
    /// How long the data is of use at the receiver, from when this host saw it first, e.g. 200ms;
    /// rto: TCP's retransmission timeout, for the last hop (with --proto tcp and --stamp)
    #[arg(long, value_name = "TIME|rto", help_heading = "Worth", allow_hyphen_values = true, value_parser = setting::<FlowLifetime>)]
    lifetime: Option<Setting<FlowLifetime>>,
    /// 0 is sent first [default: 3]
    #[arg(long, value_name = "0..7", help_heading = "Worth", allow_hyphen_values = true, value_parser = setting::<Priority>)]
    priority: Option<Setting<Priority>>,
    /// What happens to a stale packet [default: discard]
    #[arg(long, value_name = "forward|discard|truncate", help_heading = "Worth", value_parser = setting::<Treatment>)]
    treatment: Option<Setting<Treatment>>,
    /// One-way delay to reckon with where none was measured or set
    #[arg(long, value_name = "TIME", help_heading = "Worth", allow_hyphen_values = true, value_parser = setting::<Owd>)]
    owd: Option<Setting<Owd>>,
    /// Whether the deadline goes into the packets, for the last hop: LPD's option; probed: only where a probe has shown
    /// that the path carries it [default: no]
    #[arg(long, value_name = "yes|probed|no", help_heading = "Worth", value_parser = value::<Stamp>)]
    stamp: Option<Stamp>,
    /// Whether packets of one RTP timestamp are one frame, or each has a lifetime of its own [default: auto]
    #[arg(long, value_name = "auto|none", help_heading = "Worth", value_parser = value::<Frames>)]
    frames: Option<Frames>,
    /// Payload type of retransmissions and of what they repeat (RFC 4588), at most 4; the rule matches them, too
    #[arg(long, value_name = "PT[:PT]", help_heading = "Worth", allow_hyphen_values = true, value_parser = setting::<Retransmissions>)]
    rtx: Vec<Setting<Retransmissions>>,
    /// Whether RTP packets are looked into for what their frames are for: payload in clear, and header extensions.
    /// NAME: ids that are tried first, a server (livekit, mediasoup, janus, jitsi, chrome) or a [media] table of the file
    /// [default: auto]
    #[arg(long, value_name = "auto|off|NAME", help_heading = "Pictures", value_parser = value::<Media>)]
    media: Option<Media>,
    /// Frames that need one which was given up are not sent: auto, if a key frame is in sight and no repairs of the
    /// stream were seen; skip, repairs or not; off, never [default: auto]
    #[arg(long, value_name = "auto|skip|off", help_heading = "Pictures", value_parser = value::<Chain>)]
    chain: Option<Chain>,
    /// Priorities of key frames, of links of temporal level 0, 1 and 2, and of frames that no other needs, where the
    /// application gives none [default: 3; 4 to 6 by thirds of the group; 7]
    #[arg(long, value_name = "K,L0,L1,L2,LEAF", help_heading = "Pictures", allow_hyphen_values = true, value_parser = setting::<Roles>)]
    roles: Option<Setting<Roles>>,
}

/// The option may be repeated: together it says one list.
fn retransmissions(
    given: Vec<Setting<Retransmissions>>,
) -> Result<Option<Option<Retransmissions>>, String> {
    let mut all = None;
    for one in given {
        all = Some(match (all, one.0) {
            (None, one) => one,
            (Some(Some(all)), Some(one)) => Some(Retransmissions::join(all, &one)?),
            (Some(_), _) => return Err("none and a payload type are both given".into()),
        });
    }
    Ok(all)
}

impl TryFrom<Fields> for FlowPatch {
    type Error = Failure;

    fn try_from(f: Fields) -> Result<Self, Failure> {
        Ok(Self {
            rtp_pt: change(f.rtp_pt),
            rtp_kind: change(f.rtp_kind),
            ssrc: change(f.ssrc),
            // As `no` and absent are the same.
            stamp: f.stamp.map(|v| (v != Stamp::No).then_some(v)),
            // `auto` takes these away.
            frames: f.frames.map(|v| (v != Frames::Auto).then_some(v)),
            media: f.media.map(|v| (v != Media::Auto).then_some(v)),
            chain: f.chain.map(|v| (v != Chain::Auto).then_some(v)),
            roles: change(f.roles),
            rtx: retransmissions(f.rtx).map_err(|e| Failure::Usage(format!("--rtx: {e}")))?,
            proto: change(f.proto),
            src: change(f.src),
            dst: change(f.dst),
            sport: change(f.sport),
            dport: change(f.dport),
            dscp: change(f.dscp),
            mark: change(f.mark),
            cgroup: change(f.cgroup),
            dev: change(f.dev),
            lifetime: change(f.lifetime),
            priority: change(f.priority),
            treatment: change(f.treatment),
            owd: change(f.owd),
        })
    }
}

pub(crate) async fn run(verb: Verb, client: &Client, output: &Output) -> Result<ExitCode, Failure> {
    match verb {
        Verb::Add {
            name,
            fields,
            before,
            save,
        } => {
            let flow = FlowPatch::try_from(fields)?
                .apply(&FlowRule::new(name))
                .map_err(Failure::Usage)?;
            let request = FlowAdd { flow, before, save };
            output.done(&client.send(Method::POST, path::FLOWS, &request).await?)?;
        }
        Verb::Set { name, fields, save } => {
            let change = FlowPatch::try_from(fields)?;
            if change.is_empty() && !save {
                return Err(Failure::Usage(format!(
                    "flow set {name}: nothing to change was given"
                )));
            }
            let request = FlowSet { change, save };
            output.done(
                &client
                    .send(Method::PUT, &flow_path(&name), &request)
                    .await?,
            )?;
        }
        Verb::Rm { name, save } => {
            let query = if save { "?save=true" } else { "" };
            output.done(&client.delete(&(flow_path(&name) + query)).await?)?;
        }
        Verb::Ls => {
            let list: Vec<FlowInfo> = client.get(path::FLOWS).await?;
            output.answer(&list, |list| render(list))?;
        }
        Verb::Show { name } => {
            let info: FlowInfo = client.get(&flow_path(&name)).await?;
            output.answer(&info, render_one)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn flow_path(name: &FlowName) -> String {
    format!("{}/{}", path::FLOWS, part(name.as_str()))
}

/// What a rule matches, as it would be typed.
fn matches(flow: &FlowRule) -> String {
    const WORTH: &[&str] = &[
        "lifetime",
        "priority",
        "treatment",
        "owd",
        "stamp",
        "frames",
        "media",
        "chain",
        "roles",
    ];
    let fields: Vec<String> = flow
        .given()
        .into_iter()
        .filter(|(field, _)| !WORTH.contains(field))
        .map(|(field, text)| format!("{field} {text}"))
        .collect();
    if fields.is_empty() {
        "everything".into()
    } else {
        fields.join(" ")
    }
}

/// The list of rules.
pub(crate) fn render(list: &[FlowInfo]) -> String {
    if list.is_empty() {
        return "no flow rules; add one with: bestby flow add NAME --dport PORT --lifetime 200ms\n"
            .into();
    }
    let mut table = Table::new(&[
        ">#",
        "NAME",
        "MATCH",
        ">LIFETIME",
        ">PRIORITY",
        "TREATMENT",
        "STAMP",
        "MEDIA",
        "CHAIN",
        "ROLES",
        ">OWD",
        "SAVED",
        ">IN",
        ">SENT",
        ">DROPPED",
    ]);
    for info in list {
        let f = &info.flow;
        table.row(vec![
            info.position.into(),
            (&f.name).into(),
            matches(f).into(),
            or_dash(f.lifetime).into(),
            or_dash(f.priority).into(),
            or_dash(f.treatment).into(),
            or_dash(f.stamp).into(),
            or_dash(f.media.as_ref()).into(),
            or_dash(f.chain).into(),
            or_dash(f.roles).into(),
            or_dash(f.owd).into(),
            if info.saved { "yes" } else { "no" }.into(),
            info.counters.packets_in.into(),
            info.counters.packets_sent.into(),
            info.counters.dropped.total().into(),
        ]);
    }
    table
        .without_empty(&["TREATMENT", "STAMP", "MEDIA", "CHAIN", "ROLES", "OWD"])
        .render()
}

/// One rule with everything known of it.
pub(crate) fn render_one(info: &FlowInfo) -> String {
    let mut table = Table::new(&["FIELD", "VALUE"]);
    table.row(vec!["name".into(), (&info.flow.name).into()]);
    table.row(vec!["position".into(), info.position.into()]);
    for (field, text) in info.flow.given() {
        table.row(vec![field.into(), text.into()]);
    }
    table.row(vec![
        "saved".into(),
        if info.saved {
            "yes"
        } else {
            "no, lost when the host starts anew"
        }
        .into(),
    ]);
    if let Some(why) = &info.matches_nothing {
        table.row(vec!["matches nothing".into(), why.as_str().into()]);
    }
    for (name, text) in counters(&info.counters) {
        table.row(vec![name.into(), text.into()]);
    }
    table.render()
}

/// Counters in words.
fn counters(c: &Counters) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        (
            "in",
            format!("{} packets, {}", c.packets_in, bytes(c.bytes_in)),
        ),
        (
            "sent",
            format!("{} packets, {}", c.packets_sent, bytes(c.bytes_sent)),
        ),
        ("sent stale", c.sent_stale.to_string()),
        ("queued", c.queued.to_string()),
        ("dropped", drop_reasons(&c.dropped)),
    ];
    if c.truncated > 0 {
        rows.push(("truncated", c.truncated.to_string()));
    }
    if c.would_drop.total() > 0 {
        rows.push(("would drop", drop_reasons(&c.would_drop)));
    }
    rows
}
