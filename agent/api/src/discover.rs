//! `bestby discover`: which media leave an interface, and the flow rules that would cover them.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{
    DevName, Document, FlowName, FlowRule, OwdSource, PayloadTypes, PortRange, Proto, Ssrc,
};

/// Body of POST /v1/discover.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiscoverRequest {
    /// The interface; absent: the one under control, else the one of the default route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dev: Option<DevName>,
    /// How long it is watched, [`Self::SECONDS`]; absent: [`Self::USUAL`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u32>,
}

impl DiscoverRequest {
    /// Seconds that may be asked for.
    pub const SECONDS: std::ops::RangeInclusive<u32> = 1..=60;
    /// Seconds unless said.
    pub const USUAL: u32 = 10;
}

words!(
    /// The load of packets, as far as their shape shows it.
    Carried, "kind", "audio, video, rtx, rtp, rtp-ts, ts, srt, rist, rtcp, stun, dtls, turn, quic, tcp or other", {
        /// RTP with sound.
        Audio = "audio",
        /// RTP with pictures.
        Video = "video",
        /// RTP that repeats what another stream has sent (RFC 4588).
        Rtx = "rtx",
        /// RTP, of which the shape does not show what it carries.
        Rtp = "rtp",
        /// MPEG-TS in RTP.
        RtpTs = "rtp-ts",
        /// MPEG-TS in UDP.
        Ts = "ts",
        /// SRT.
        Srt = "srt",
        /// RIST, simple or main profile.
        Rist = "rist",
        /// RTCP.
        Rtcp = "rtcp",
        /// STUN.
        Stun = "stun",
        /// DTLS: handshakes and data.
        Dtls = "dtls",
        /// ChannelData of TURN: what a relay forwards.
        Turn = "turn",
        /// QUIC.
        Quic = "quic",
        /// TCP.
        Tcp = "tcp",
        /// Anything else.
        Other = "other",
    }
);

impl Carried {
    /// Whether it is media, which need a flow rule. Signalling (RTCP, STUN, DTLS handshakes) needs none.
    pub const fn is_media(self) -> bool {
        matches!(
            self,
            Self::Audio
                | Self::Video
                | Self::Rtx
                | Self::Rtp
                | Self::RtpTs
                | Self::Ts
                | Self::Srt
                | Self::Rist
        )
    }

    /// Whether it is signalling, which waits for no media without a rule.
    pub const fn is_signalling(self) -> bool {
        matches!(self, Self::Rtcp | Self::Stun)
    }
}

/// The latency in a handshake of SRT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SrtLatency {
    /// Milliseconds.
    pub ms: u16,
    /// The listener is this host, and grants it. False: this host is the caller and asks for it.
    pub granted: bool,
}

/// Streams that leave the interface, are of one kind, and share payload type, port and flow rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Discovered {
    /// What they carry.
    pub kind: Carried,
    /// Transport protocol; null: neither UDP nor TCP.
    #[serde(default)]
    pub proto: Option<Proto>,
    /// Source address, if it is one.
    #[serde(default)]
    pub src: Option<IpAddr>,
    /// Source ports, from the first to the last; null: a protocol without ports.
    #[serde(default)]
    pub sport: Option<PortRange>,
    /// Destination address, if it is one.
    #[serde(default)]
    pub dst: Option<IpAddr>,
    /// Destination ports, from the first to the last.
    #[serde(default)]
    pub dport: Option<PortRange>,
    /// Payload types of RTP.
    #[serde(default)]
    pub rtp_pt: Option<PayloadTypes>,
    /// Synchronization source, if it is one.
    #[serde(default)]
    pub ssrc: Option<Ssrc>,
    /// Clock of RTP's timestamps, rounded to a usual one, Hz; null: not known.
    #[serde(default)]
    pub clock_hz: Option<u32>,
    /// Of repeats: the payload type that they repeat.
    #[serde(default)]
    pub repeats: Option<u8>,
    /// Of SRT, if a handshake was seen; the longest.
    #[serde(default)]
    pub latency: Option<SrtLatency>,
    /// Of MPEG-TS: per cent of its packets that are only padding, estimated from the first two of each datagram.
    #[serde(default)]
    pub null_percent: Option<u8>,
    /// Flows: different addresses or ports.
    pub flows: u64,
    /// Different addresses and ports that they go to.
    pub receivers: u64,
    /// Packets per second.
    pub packets_s: f64,
    /// IP bytes per second.
    pub rate_bytes_s: u64,
    /// The rule that covers them; null: none does.
    #[serde(default)]
    pub flow: Option<FlowName>,
    /// The longest known one-way delay to their receivers, ns; null: none is known.
    #[serde(default)]
    pub owd_ns: Option<u64>,
    /// Who knows that delay.
    #[serde(default)]
    pub owd_source: OwdSource,
    /// Receivers' addresses of which the delay is known.
    #[serde(default)]
    pub owd_known: u64,
}

/// A flow rule that would cover what none covers, and why it is as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suggestion {
    /// The rule.
    pub flow: FlowRule,
    /// Its reason, one sentence or two.
    pub reason: String,
}

/// Answer of POST /v1/discover.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Discovery {
    /// The interface that was watched.
    pub dev: DevName,
    /// For how long, ns.
    pub watched_ns: u64,
    /// Packets that were looked at.
    pub packets: u64,
    /// Packets that the kernel dropped from the watcher's buffer, on their way to the watcher only.
    #[serde(default)]
    pub missed: u64,
    /// At the end one of so many flows was looked at; 1 = all were.
    pub one_of: u32,
    /// Packets of flows beyond the 4,096 that are told apart.
    #[serde(default)]
    pub beyond: u64,
    /// Streams that leave, media first, then by rate.
    pub streams: Vec<Discovered>,
    /// Rows that were left out: those of the lowest rates.
    #[serde(default)]
    pub left_out: u64,
    /// Rules for media that no rule covers, in the order in which they are to be added.
    pub rules: Vec<Suggestion>,
    /// Hints for the operator.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl FlowRule {
    /// The command that adds this rule: `bestby flow add NAME ...`.
    pub fn command(&self) -> String {
        let mut text = format!("bestby flow add {}", self.name);
        for (field, value) in self.given() {
            text += &format!(" --{} {value}", field.replace('_', "-"));
        }
        // The command wants to be told about a deadline in any case.
        if self.lifetime.is_none() {
            text += " --lifetime none";
        }
        text
    }

    /// The rule as a `[[flow]]` table of the configuration file; empty for a rule that the file would refuse.
    pub fn toml(&self) -> String {
        let mut document = match Document::parse("", "rule") {
            Ok(document) => document,
            Err(_) => return String::new(),
        };
        match document.put_flow(self, None) {
            Ok(()) => document.text(),
            Err(_) => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_is_written_as_a_command_and_as_toml() {
        let rule: FlowRule = serde_json::from_str(
            r#"{"name":"video","proto":"udp","sport":7882,"rtp_pt":"96,98","rtx":"97:96","lifetime":"400ms"}"#,
        )
        .unwrap();
        assert_eq!(
            rule.command(),
            "bestby flow add video --proto udp --sport 7882 --rtp-pt 96,98 --lifetime 400ms --rtx 97:96"
        );
        let text = rule.toml();
        let read = crate::Config::parse(&text, "f").unwrap();
        assert_eq!(read.flows, [rule]);
        let rule: FlowRule =
            serde_json::from_str(r#"{"name":"srt","sport":9000,"priority":3}"#).unwrap();
        let command = "bestby flow add srt --sport 9000 --priority 3 --lifetime none";
        assert_eq!(rule.command(), command);
    }

    #[test]
    fn request_without_fields_is_taken_and_unknown_fields_are_refused() {
        let asked: DiscoverRequest = serde_json::from_str("{}").unwrap();
        assert_eq!(asked, DiscoverRequest::default());
        assert!(serde_json::from_str::<DiscoverRequest>(r#"{"second":1}"#).is_err());
    }
}
