//! `bestby media ls`: streams of RTP and MPEG-TS that rules cover, and what the classifier read of their frames
//! (`bb_role.h`, `bb_ts.h`).

use std::collections::{BTreeMap, HashMap, HashSet};

use bestby_api::{
    FlowRule, Learning, Media, MediaList, MediaStream, NO_RULE, PacketDescription, Pictures, Ssrc,
};
use bestby_bpf::abi;

use crate::datapath::Datapath;
use crate::error::Result;
use crate::kernel::address::address;
use crate::kernel::maps::Shared;
use crate::kernel::sys::monotonic_ns;

/// What RTP's payload type would be (RFC 3551).
const TS_PAYLOAD_TYPE: u8 = 33;
/// A stream that was silent for so long is over.
const SILENT_NS: u64 = 60_000_000_000;
/// Header extensions of a stream are encrypted, too (RFC 9335), so that nothing of it can be read.
pub(crate) const CRYPTEX: &str = "cryptex";
/// Streams that are listed: a person reads fewer, and an answer has a few hundred kilobytes.
const LISTED: usize = 1000;

/// A stream as the kernel's tables have it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Stream {
    /// Its entry.
    pub stream: abi::bb_stream,
    /// What was read of its frames; all 0 if nothing was.
    pub video: abi::bb_video,
    /// Since its last packet, ns.
    pub idle_ns: u64,
    /// Its packets are of MPEG-TS (`bb_ts.h`). Without RTP its key has no SSRC, and no payload type.
    pub ts: bool,
}

/// MPEG-TS in RTP has two entries: that of RTP knows the payload type, the other one the pictures.
fn one_of_two(found: Vec<Stream>) -> Vec<Stream> {
    // The lowest bit is RIST's, of repairs.
    let place = |s: &Stream| (s.stream.key.flow, s.stream.key.ssrc & !1);
    let (mut all, rtp): (Vec<_>, Vec<_>) = found.into_iter().partition(|s| s.ts);
    let ts: HashMap<_, usize> = all.iter().map(place).zip(0..).collect();
    for s in rtp {
        match ts.get(&place(&s)).and_then(|i| all.get_mut(*i)) {
            Some(pictures) => pictures.stream.key = s.stream.key,
            None => all.push(s),
        }
    }
    all
}

/// The streams of the last minute; looks at the whole table, which has 65,536 places: milliseconds.
///
/// # Errors
/// A map cannot be read.
pub(crate) fn heard(shared: &Shared) -> Result<Vec<Stream>> {
    let now = monotonic_ns();
    let streams = shared.streams.collect(|index, s| {
        let idle_ns = now.saturating_sub(s.way.used_ns);
        let ts = s.key.rtp == abi::BB_STREAM_TS;
        let is_one = s.way.tag != 0 && (ts || s.key.rtp & abi::BB_RTP != 0);
        (is_one && idle_ns < SILENT_NS).then(|| {
            let video = abi::bb_video::default();
            let stream = *s;
            (
                index,
                Stream {
                    stream,
                    video,
                    idle_ns,
                    ts,
                },
            )
        })
    })?;
    let mut found = Vec::with_capacity(streams.len());
    for (index, mut s) in streams {
        let video = shared.videos.get(&index)?.unwrap_or_default();
        // Else it is of a stream that had this place before.
        if video.gen_ == s.stream.way.gen_ {
            s.video = video;
        }
        found.push(s);
    }
    Ok(one_of_two(found))
}

/// The flows of streams, by what a stream's key has of them.
///
/// # Errors
/// The map cannot be read.
pub(crate) fn flows_of(shared: &Shared, streams: &[Stream]) -> Result<HashMap<u64, abi::bb_flow>> {
    let wanted: HashSet<u64> = streams.iter().map(|s| s.stream.key.flow).collect();
    if wanted.is_empty() {
        return Ok(HashMap::new());
    }
    let flows = shared.flows.collect(|_, flow| {
        let is_one = flow.way.tag != 0 && wanted.contains(&flow.hash);
        is_one.then_some((flow.hash, *flow))
    })?;
    Ok(flows.into_iter().collect())
}

/// Name of a codec in JSON and metrics; `number`: `bb_video.codec`, which is known.
pub(crate) fn codec_name(number: u8) -> &'static str {
    match u32::from(number).wrapping_sub(1) {
        abi::BB_CODEC_H264 => "h264",
        abi::BB_CODEC_H265 => "h265",
        abi::BB_CODEC_VP8 => "vp8",
        abi::BB_CODEC_VP9 => "vp9",
        abi::BB_CODEC_AV1 => "av1",
        abi::BB_CODEC_DD => "dependency-descriptor",
        abi::BB_CODEC_VFM => "frame-marking",
        abi::BB_CODEC_TS_H264 => "ts-h264",
        abi::BB_CODEC_TS_H265 => "ts-h265",
        abi::BB_CODEC_TS_MPEG2 => "ts-mpeg2",
        _ => "opaque",
    }
}

/// The codec of a stream in JSON and metrics; `None`: not known yet.
pub(crate) fn codec_of(video: &abi::bb_video) -> Option<&'static str> {
    match u32::from(video.codec) {
        0 | abi::BB_CODEC_OPAQUE if u32::from(video.key) & abi::BB_VIDEO_CRYPTEX != 0 => {
            Some(CRYPTEX)
        }
        0 => None,
        _ => Some(codec_name(video.codec)),
    }
}

/// The likeliest codec of a stream of which it is not known.
pub(crate) fn learning(s: &Stream) -> Option<Learning> {
    let video = &s.video;
    if codec_of(video).is_some() {
        return None;
    }
    let frames = *video.tried.iter().max()?;
    // Of equals the first one.
    let codec = (1..).zip(&video.tried).find(|(_, n)| **n == frames)?.0;
    (frames > 0).then(|| Learning {
        codec: if s.ts { "ts" } else { codec_name(codec) }.into(),
        frames,
        of: abi::BB_CODEC_SURE as u8,
    })
}

/// What is known of the frames of a stream whose codec is known.
fn pictures(s: &Stream) -> Option<Pictures> {
    let video = &s.video;
    if video.codec == 0 || u32::from(video.codec) == abi::BB_CODEC_OPAQUE {
        return None;
    }
    let key = u32::from(video.key);
    // Of the stream's current ADU: bb_head_number.
    let number = (s.stream.head >> 32) as u16;
    Some(Pictures {
        levels: video.levels + 1,
        group_frames: Some(video.group).filter(|n| *n > 0),
        since_key_frames: (key & abi::BB_VIDEO_HAD_KEY != 0).then_some(video.position),
        broken_level: video.broken.checked_sub(1),
        broken_frames: (video.broken > 0).then(|| number.wrapping_sub(video.broken_at)),
        skipped_frames: video.skipped,
        repaired: key & abi::BB_VIDEO_HEALED != 0,
    })
}

/// What a list says of one stream.
fn listed(
    s: &Stream,
    flow: Option<&abi::bb_flow>,
    rule: Option<&FlowRule>,
    dev: Option<String>,
) -> MediaStream {
    let key = flow.map(|flow| &flow.key);
    let off = rule.is_some_and(|rule| rule.media == Some(Media::Off));
    let codec = if off { Some("off") } else { codec_of(&s.video) };
    MediaStream {
        flow: rule.map_or_else(|| NO_RULE.into(), |rule| rule.name.to_string()),
        dev,
        src: key.map(|key| address(key.src)),
        sport: key.map(|key| key.sport),
        dst: key.map(|key| address(key.dst)),
        dport: key.map(|key| key.dport),
        ssrc: Ssrc::new(s.stream.key.ssrc),
        payload_type: match s.stream.key.rtp {
            abi::BB_STREAM_TS => TS_PAYLOAD_TYPE,
            rtp => (rtp & 0x7f) as u8,
        },
        codec: codec.map(Into::into),
        learning: learning(s).filter(|_| !off),
        pictures: pictures(s).filter(|_| !off),
        idle_ns: s.idle_ns,
    }
}

/// Streams by codec, and those of which it is not known as `unknown`. Every codec is there.
pub(crate) fn by_codec(streams: &[Stream]) -> BTreeMap<&'static str, u64> {
    // Between the codecs of RTP and those of MPEG-TS is a number that none has.
    let codecs = (0..=abi::BB_CODEC_TS_MPEG2 as u8).map(|c| codec_name(c + 1));
    let mut counts: BTreeMap<_, u64> = codecs.map(|name| (name, 0)).collect();
    counts.insert("unknown", 0);
    counts.insert(CRYPTEX, 0);
    for s in streams {
        let name = codec_of(&s.video).unwrap_or("unknown");
        // Nothing was read: no rule covers it, or the rule says so, or it repeats another one.
        if s.video.gen_ != 0 {
            *counts.entry(name).or_default() += 1;
        }
    }
    counts
}

impl Stream {
    /// What is known of it, for a packet that begins a frame: none is under way.
    pub(crate) const fn between_frames(&self) -> abi::bb_video {
        abi::bb_video {
            number: 0, // no ADU has it
            open: [0; 2],
            going: 0,
            wrong: 0,
            strikes: 0,
            ..self.video
        }
    }
}

impl Datapath {
    /// The stream of a packet that is described, as far as the description says; of several the one that was heard
    /// last.
    ///
    /// # Errors
    /// A map cannot be read.
    pub(crate) fn stream_of(&self, ifindex: u32, p: &PacketDescription) -> Result<Option<Stream>> {
        let kind = p.rtp.map_or(abi::BB_STREAM_TS, |payload_type| {
            abi::BB_RTP | u32::from(payload_type)
        });
        let mut streams = heard(&self.shared)?;
        streams.retain(|s| {
            s.stream.key.rtp == kind && p.ssrc.is_none_or(|ssrc| ssrc.get() == s.stream.key.ssrc)
        });
        let flows = flows_of(&self.shared, &streams)?;
        streams.retain(|s| {
            flows.get(&s.stream.key.flow).is_some_and(|flow| {
                let key = &flow.key;
                key.ifindex == ifindex
                    && key.proto == p.proto.number()
                    && address(key.dst) == p.dst
                    && p.dport.is_none_or(|port| port == key.dport)
                    && p.src.is_none_or(|src| src == address(key.src))
                    && p.sport.is_none_or(|port| port == key.sport)
            })
        });
        Ok(streams.into_iter().min_by_key(|s| s.idle_ns))
    }

    /// The id of the rule of a stream: as it was found for its last packet.
    fn rule_of(
        &self,
        s: &Stream,
        flow: Option<&abi::bb_flow>,
        by_stream: bool,
    ) -> Option<&FlowRule> {
        let id = match (by_stream, flow) {
            // 0x8000 says that it was looked for.
            (true, _) => s.stream.verdict & u64::from(abi::BB_MAX_RULES - 1),
            (false, flow) => flow?.rule & 0xffff,
        };
        let entry = self.book.entries.iter().find(|e| u64::from(e.id) == id)?;
        Some(&entry.rule)
    }

    /// GET /v1/media.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn media(&self) -> Result<MediaList> {
        let mut streams = heard(&self.shared)?;
        let flows = flows_of(&self.shared, &streams)?;
        let config = self.shared.config.get(&0)?.unwrap_or_default();
        let by_stream = config.flags & abi::BB_CONFIG_RTP_RULES != 0;
        let devices: HashMap<u32, String> = self
            .attached
            .values()
            .map(|a| (a.ifindex, a.dev.to_string()))
            .collect();
        streams.sort_by_key(|s| s.idle_ns);
        let mut all = Vec::new();
        let mut left_out = 0;
        for s in &streams {
            let flow = flows.get(&s.stream.key.flow);
            let rule = self.rule_of(s, flow, by_stream);
            // What no rule covers is not read.
            if rule.is_none() && s.video.gen_ == 0 {
                continue;
            }
            if all.len() == LISTED {
                left_out += 1;
                continue;
            }
            let dev = flow.and_then(|flow| devices.get(&flow.key.ifindex).cloned());
            all.push(listed(s, flow, rule, dev));
        }
        all.sort_by(|a, b| {
            let order =
                |s: &MediaStream| (s.flow.clone(), s.dst, s.dport, s.src, s.sport, s.ssrc.get());
            order(a).cmp(&order(b))
        });
        Ok(MediaList {
            streams: all,
            left_out,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::address::address_bytes;

    fn stream(video: abi::bb_video) -> Stream {
        Stream {
            stream: abi::bb_stream {
                key: abi::bb_stream_key {
                    ssrc: 7,
                    rtp: abi::BB_RTP | 96,
                    ..Default::default()
                },
                head: 3 << 32 | 77,
                ..Default::default()
            },
            video,
            idle_ns: 5,
            ts: false,
        }
    }

    /// One of MPEG-TS, of this flow and SSRC.
    fn ts_stream(flow: u64, ssrc: u32, codec: u8, frames: u8) -> Stream {
        let mut of = stream(abi::bb_video {
            gen_: 1,
            codec,
            ..Default::default()
        });
        of.stream.key = abi::bb_stream_key {
            flow,
            ssrc,
            rtp: abi::BB_STREAM_TS,
        };
        of.video.tried[0] = frames;
        of.ts = true;
        of
    }

    #[test]
    fn ts_in_rtp_is_one_stream_of_two_entries() {
        let codec = abi::BB_CODEC_TS_H264 as u8 + 1;
        let mut rtp = stream(abi::bb_video::default());
        rtp.stream.key.flow = 9;
        let of = |ssrc| ts_stream(9, ssrc, codec, 32);
        // RTP's has an odd SSRC.
        let all = one_of_two(vec![of(6), rtp, ts_stream(8, 0, 0, 7)]);
        let listed: Vec<_> = all
            .iter()
            .map(|s| listed(s, None, None, None))
            .map(|s| (s.codec, s.payload_type, s.ssrc.get(), s.learning))
            .collect();
        let learning = Learning {
            codec: "ts".into(),
            frames: 7,
            of: 32,
        };
        assert_eq!(
            listed,
            [
                (Some("ts-h264".into()), 96, 7, None),
                (None, TS_PAYLOAD_TYPE, 0, Some(learning)),
            ]
        );
        // Another SSRC is another stream.
        assert_eq!(one_of_two(vec![of(4), rtp]).len(), 2);
    }

    #[test]
    fn stream_is_listed_with_what_was_read_of_it() {
        let video = abi::bb_video {
            gen_: 1,
            codec: abi::BB_CODEC_VP8 as u8 + 1,
            levels: 2,
            group: 60,
            position: 12,
            key: (abi::BB_VIDEO_HAD_KEY | abi::BB_VIDEO_HEALED) as u8,
            broken: 2,
            broken_at: 0xffff,
            skipped: 9,
            ..Default::default()
        };
        let flow = abi::bb_flow {
            key: abi::bb_flow_key {
                dst: address_bytes("192.0.2.7".parse().unwrap()),
                dport: 5004,
                ..Default::default()
            },
            ..Default::default()
        };
        let rule: FlowRule = serde_json::from_str(r#"{"name":"v","lifetime":"1s"}"#).unwrap();
        let of = listed(
            &stream(video),
            Some(&flow),
            Some(&rule),
            Some("eth0".into()),
        );
        assert_eq!(
            (of.flow.as_str(), of.payload_type, of.ssrc.get()),
            ("v", 96, 7)
        );
        assert_eq!((of.dst, of.dport), ("192.0.2.7".parse().ok(), Some(5004)));
        assert_eq!((of.codec.as_deref(), &of.learning), (Some("vp8"), &None));
        let pictures = of.pictures.unwrap();
        assert_eq!(
            (
                pictures.levels,
                pictures.group_frames,
                pictures.since_key_frames
            ),
            (3, Some(60), Some(12))
        );
        assert_eq!(pictures.skipped_frames, 9);
        let broken = (pictures.broken_level, pictures.broken_frames);
        assert_eq!((broken, pictures.repaired), ((Some(1), Some(4)), true));
        // Of a rule that forbids it nothing is said, whatever was read before.
        let off = FlowRule {
            media: Some(Media::Off),
            ..rule
        };
        let of = listed(&stream(video), None, Some(&off), None);
        assert_eq!(
            (of.codec.as_deref(), of.pictures, of.dst),
            (Some("off"), None, None)
        );
    }

    #[test]
    fn stream_whose_codec_is_not_known_is_listed_with_the_likeliest() {
        let mut video = abi::bb_video {
            gen_: 1,
            ..Default::default()
        };
        let of = listed(&stream(video), None, None, None);
        assert_eq!((of.codec, of.learning, of.pictures), (None, None, None));
        video.tried[..3].copy_from_slice(&[3, 12, 12]);
        let of = listed(&stream(video), None, None, None);
        let learning = of.learning.unwrap();
        assert_eq!(
            (learning.codec.as_str(), learning.frames, learning.of),
            ("h265", 12, 32)
        );
        video.codec = abi::BB_CODEC_OPAQUE as u8;
        let of = listed(&stream(video), None, None, None);
        assert_eq!(
            (of.codec.as_deref(), of.learning, of.pictures),
            (Some("opaque"), None, None)
        );
        // Before that, too: nothing will be learnt of it.
        for codec in [0, abi::BB_CODEC_OPAQUE as u8] {
            video.key = abi::BB_VIDEO_CRYPTEX as u8;
            video.codec = codec;
            let of = listed(&stream(video), None, None, None);
            assert_eq!((of.codec.as_deref(), of.learning), (Some("cryptex"), None));
        }
    }

    #[test]
    fn streams_are_counted_by_codec_and_those_that_are_not_read_are_not() {
        let of = |gen_, codec| {
            stream(abi::bb_video {
                gen_,
                codec,
                ..Default::default()
            })
        };
        let counts = by_codec(&[of(1, 1), of(1, 1), of(1, 0), of(1, 255), of(0, 0)]);
        let count = |name| counts.get(name).copied();
        assert_eq!(
            [
                count("h264"),
                count("h265"),
                count("unknown"),
                count("opaque")
            ],
            [Some(2), Some(0), Some(1), Some(1)]
        );
    }
}
