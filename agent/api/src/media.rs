//! Streams of media, and what is known of their frames.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::Ssrc;

/// A codec that a stream may be of, and how sure that is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learning {
    /// The codec, as in [`MediaStream::codec`].
    pub codec: String,
    /// Frames in a row that kept to its rules.
    pub frames: u8,
    /// So many make it known.
    pub of: u8,
}

/// What the frames of a stream are for, once its codec is known.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pictures {
    /// Temporal levels seen; 1 = it has no layers.
    pub levels: u8,
    /// Frames from one key frame to the next, the last time; null: two were not seen yet.
    #[serde(default)]
    pub group_frames: Option<u16>,
    /// Frames since the last key frame; null: none was seen yet.
    #[serde(default)]
    pub since_key_frames: Option<u16>,
    /// Temporal level of a frame that was given up, so that those that need it are not sent; null: none was.
    #[serde(default)]
    pub broken_level: Option<u8>,
    /// Frames since that one, those that were not sent among them; null as above.
    #[serde(default)]
    pub broken_frames: Option<u16>,
    /// Frames that were not sent because they need one that was given up, since the stream began. Where the interface
    /// only observes, they were sent.
    #[serde(default)]
    pub skipped_frames: u32,
    /// Whether repairs of its packets were seen, so that `--chain auto` breaks no chain.
    pub repaired: bool,
}

/// One stream of RTP, or of MPEG-TS, that a flow rule covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaStream {
    /// Its flow rule.
    pub flow: String,
    /// Interface; null: the kernel forgot the stream's flow.
    #[serde(default)]
    pub dev: Option<String>,
    /// Source address; null as above.
    #[serde(default)]
    pub src: Option<IpAddr>,
    /// Source port.
    #[serde(default)]
    pub sport: Option<u16>,
    /// Destination address.
    #[serde(default)]
    pub dst: Option<IpAddr>,
    /// Destination port.
    #[serde(default)]
    pub dport: Option<u16>,
    /// RTP's synchronization source; 0: MPEG-TS without RTP.
    pub ssrc: Ssrc,
    /// RTP payload type; of MPEG-TS without RTP 33.
    pub payload_type: u8,
    /// `h264`, `h265`, `vp8`, `vp9`, `av1`; `ts-h264`, `ts-h265`, `ts-mpeg2`: in MPEG-TS;
    /// `dependency-descriptor`, `frame-marking`: header extensions that say the same
    /// of what is encrypted; `opaque`: of no codec that bestby reads, or encrypted; `cryptex`: its header extensions are
    /// encrypted, too (RFC 9335); `off`: its rule says that it is not looked at; null: not known yet.
    #[serde(default)]
    pub codec: Option<String>,
    /// While the codec is not known: the likeliest.
    #[serde(default)]
    pub learning: Option<Learning>,
    /// Once it is.
    #[serde(default)]
    pub pictures: Option<Pictures>,
    /// Since its last packet, ns; exact to 10 ms.
    pub idle_ns: u64,
}

/// A codec of [`MediaStream::codec`] as a person writes it.
pub fn codec_words(name: &str) -> String {
    match name {
        "h264" => "H.264".into(),
        "h265" => "H.265".into(),
        "dependency-descriptor" => "Dependency Descriptor".into(),
        "frame-marking" => "Video Frame Marking".into(),
        "ts" => "MPEG-TS".into(),
        "ts-mpeg2" => "MPEG-TS with MPEG-2".into(),
        "cryptex" => "Cryptex".into(),
        "opaque" | "off" => name.into(),
        other if other.starts_with("ts-") => {
            format!(
                "MPEG-TS with {}",
                codec_words(other.trim_start_matches("ts-"))
            )
        }
        other => other.to_uppercase(),
    }
}

/// GET /v1/media: streams of the last minute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaList {
    /// By rule, receiver and SSRC.
    pub streams: Vec<MediaStream>,
    /// How many more there are: those that were silent for longest are left out.
    #[serde(default)]
    pub left_out: u64,
}
