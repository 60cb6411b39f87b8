//! What a session description (SDP, RFC 8866) says of the streams: ids of header extensions, payload types, and which
//! of them retransmit. Of a description that is not valid nothing is taken.
//!
//! Only lines of `m=` and of the attributes `extmap`, `rtpmap` and `fmtp` are read; of the others only their form.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{ConfigError, ExtensionId, MediaTable};

/// Longest description that is read, and most errors that are named.
pub const MAX_SDP: usize = 1 << 20;
const MAX_ERRORS: usize = 20;

/// URIs of the extensions that the classifier reads.
const DD: &str =
    "https://aomediacodec.github.io/av1-rtp-spec/#dependency-descriptor-rtp-header-extension";
const VFM: &str = "urn:ietf:params:rtp-hdrext:framemarking";
/// Ids from here on are offered and not agreed upon yet (RFC 8285, 6).
const PROVISIONAL: u32 = 4096;

/// What was learnt from a description.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Learned {
    /// Ids of header extensions.
    pub media: MediaTable,
    /// Dynamic payload types of audio.
    pub audio: Vec<u8>,
    /// Those of video, without retransmissions.
    pub video: Vec<u8>,
    /// Payload types of retransmissions, each with that of what it repeats.
    pub rtx: Vec<(u8, u8)>,
}

/// A kind of media of which payload types are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Audio,
    Video,
    Other,
}

/// The highest static payload type of audio or video.
const STATIC: u8 = 34;

/// Where the reader is, and what it has found.
struct Reader<'t> {
    file: &'t str,
    line: usize,
    errors: Vec<ConfigError>,
    /// `None`: before the first `m=`.
    kind: Option<Kind>,
    learned: Learned,
    /// Of each payload type of this `m=` section: is it one of retransmissions?
    types: BTreeMap<u8, bool>,
}

impl Learned {
    /// Reads a description; `file` is only its name for messages.
    ///
    /// # Errors
    /// Everything that is wrong in it, in the order of lines.
    pub fn parse(text: &str, file: &str) -> Result<Self, Vec<ConfigError>> {
        let mut reader = Reader {
            file,
            line: 1,
            errors: Vec::new(),
            kind: None,
            learned: Self::default(),
            types: BTreeMap::new(),
        };
        if text.len() > MAX_SDP {
            reader.refuse("is longer than 1 MiB", "");
            return Err(reader.errors);
        }
        let mut lines = text.lines().map(|l| l.trim_end_matches('\r'));
        if lines.next() != Some("v=0") {
            reader.refuse("does not begin with v=0", "is it a session description?");
        }
        for line in lines {
            reader.line += 1;
            reader.read(line);
            if reader.errors.len() == MAX_ERRORS {
                break;
            }
        }
        reader.end_section();
        if reader.kind.is_none() && reader.errors.is_empty() {
            reader.refuse("has no line m=", "nothing is sent by it");
        }
        let media = reader.learned.media;
        if media != MediaTable::default()
            && let Err(why) = media.check()
        {
            reader.refuse(
                format!("extmap {why}"),
                "each extension has an id of its own",
            );
        }
        if reader.errors.is_empty() {
            Ok(reader.learned)
        } else {
            Err(reader.errors)
        }
    }

    /// The tables of the configuration file that say the same, and what flow rules need.
    pub fn to_toml(&self, name: &str) -> String {
        let list = |types: &[u8]| {
            let types: Vec<String> = types.iter().map(u8::to_string).collect();
            types.join(", ")
        };
        let mut text = String::new();
        let given = self.media.given();
        if given.is_empty() {
            text += "# no header extension that says what frames are for\n";
        } else {
            text += &format!("[media.{}]\n", key(name));
            for (field, value) in given {
                text += &format!("{field} = {value}\n");
            }
        }
        if !self.audio.is_empty() || !self.video.is_empty() {
            text += "\n[rtp_profile]\n";
        }
        for (field, types) in [("audio", &self.audio), ("video", &self.video)] {
            if !types.is_empty() {
                text += &format!("{field} = [{}]\n", list(types));
            }
        }
        if !self.rtx.is_empty() {
            let pairs = self.rtx.iter().map(|(rtx, of)| format!("{rtx}:{of}"));
            let pairs: Vec<String> = pairs.collect();
            text += &format!(
                "\n# in [[flow]] of the video: rtx = \"{}\"\n",
                pairs.join(",")
            );
        }
        text
    }
}

/// A name as a key of TOML: dots part keys.
fn key(name: &str) -> String {
    if name.contains('.') {
        format!("\"{name}\"")
    } else {
        name.into()
    }
}

impl Reader<'_> {
    fn refuse(&mut self, message: impl Into<String>, hint: impl Into<String>) {
        self.errors.push(ConfigError {
            file: self.file.into(),
            line: self.line,
            message: message.into(),
            hint: hint.into(),
        });
    }

    fn read(&mut self, line: &str) {
        let well_formed = line
            .split_once('=')
            .filter(|(kind, _)| kind.len() == 1 && kind.bytes().all(|b| b.is_ascii_lowercase()));
        let Some((kind, value)) = well_formed else {
            let hint = "each line is a letter, an equals sign and a value";
            return self.refuse("is no line of SDP", hint);
        };
        match kind {
            "v" => self.refuse("has a second line v=", "one description at a time"),
            "m" => self.section(value),
            "a" => self.attribute(value),
            _ => {}
        }
    }

    fn section(&mut self, value: &str) {
        self.end_section();
        let fields: Vec<&str> = value.split(' ').collect();
        let port = fields
            .get(1)
            .is_some_and(|p| p.starts_with(|c: char| c.is_ascii_digit()));
        if fields.len() < 4 || fields.iter().any(|f| f.is_empty()) || !port {
            self.refuse(
                "m= does not name media, port, protocol and formats",
                "for example m=video 9 UDP/TLS/RTP/SAVPF 96 97",
            );
        }
        self.kind = Some(match fields[0] {
            "audio" => Kind::Audio,
            "video" => Kind::Video,
            _ => Kind::Other,
        });
    }

    /// What was kept of a section is in its order now. Static payload types (RFC 3551) need no table.
    fn end_section(&mut self) {
        let types = std::mem::take(&mut self.types);
        let Learned { audio, video, .. } = &mut self.learned;
        let (list, other) = match self.kind {
            Some(Kind::Audio) => (audio, video),
            Some(Kind::Video) => (video, audio),
            _ => return,
        };
        let mut both = None;
        for (pt, _) in types.into_iter().filter(|(pt, rtx)| !rtx && *pt > STATIC) {
            if other.contains(&pt) {
                both = Some(pt);
            } else if !list.contains(&pt) {
                list.push(pt);
            }
        }
        if let Some(pt) = both {
            let message = format!("payload type {pt} is that of audio and of video");
            self.refuse(message, "one description of one bundle at a time");
        }
    }

    fn attribute(&mut self, value: &str) {
        let (name, value) = value.split_once(':').unwrap_or((value, ""));
        match (name, self.kind) {
            ("extmap", kind) => self.extmap(value, kind),
            ("rtpmap", Some(Kind::Audio | Kind::Video)) => self.rtpmap(value),
            ("fmtp", Some(Kind::Audio | Kind::Video)) => self.fmtp(value),
            _ => {}
        }
    }

    /// `ID[/DIRECTION] URI [ATTRIBUTES]`.
    fn extmap(&mut self, value: &str, kind: Option<Kind>) {
        let mut fields = value.split(' ');
        let id = fields.next().unwrap_or_default();
        let id = id.split_once('/').map_or(id, |(id, _)| id);
        let (Ok(id), Some(uri)) = (id.parse::<u32>(), fields.next()) else {
            return self.refuse("extmap names no id and URI", "for example a=extmap:12 URI");
        };
        if id >= PROVISIONAL {
            return;
        }
        let Some(id) = u8::try_from(id).ok().and_then(ExtensionId::new) else {
            return self.refuse(
                format!("extmap has id {id}"),
                "ids are from 1 to 14, or from 16 to 255",
            );
        };
        if kind == Some(Kind::Audio) || kind == Some(Kind::Other) {
            return;
        }
        let place = match uri {
            DD => &mut self.learned.media.dd,
            VFM => &mut self.learned.media.vfm,
            _ => return,
        };
        match *place {
            Some(known) if known != id => {
                let message = format!("extmap gives {uri} id {id}, which had id {known} before");
                self.refuse(message, "one description of one bundle at a time");
            }
            _ => *place = Some(id),
        }
    }

    /// A payload type at the beginning of a value, and the rest.
    fn payload_type<'v>(&mut self, what: &str, value: &'v str) -> Option<(u8, &'v str)> {
        let (pt, rest) = value.split_once(' ').unwrap_or((value, ""));
        match pt.parse::<u8>() {
            Ok(pt) if pt < 128 => Some((pt, rest)),
            _ => {
                let message = format!("{what} has payload type \"{}\"", shown(pt));
                self.refuse(message, "payload types are from 0 to 127");
                None
            }
        }
    }

    /// `PT NAME/RATE[/CHANNELS]`.
    fn rtpmap(&mut self, value: &str) {
        let Some((pt, codec)) = self.payload_type("rtpmap", value) else {
            return;
        };
        let (name, rate) = codec.split_once('/').unwrap_or((codec, ""));
        if name.is_empty() || !rate.starts_with(|c: char| c.is_ascii_digit()) {
            let hint = "for example a=rtpmap:96 VP8/90000";
            return self.refuse("rtpmap names no codec and clock rate", hint);
        }
        self.types.insert(pt, name.eq_ignore_ascii_case("rtx"));
    }

    /// `PT apt=ORIGINAL[;...]`; of others nothing is read.
    fn fmtp(&mut self, value: &str) {
        let Some((pt, parameters)) = self.payload_type("fmtp", value) else {
            return;
        };
        let apt = parameters
            .split(';')
            .find_map(|p| p.trim().strip_prefix("apt="));
        let Some(apt) = apt else { return };
        let Some((original, _)) = self.payload_type("fmtp apt", apt) else {
            return;
        };
        let pair = (pt, original);
        match self.learned.rtx.iter().find(|(rtx, _)| *rtx == pt) {
            Some(known) if *known != pair => {
                let message = format!(
                    "payload type {pt} repeats {original}, and {} before",
                    known.1
                );
                self.refuse(message, "one description of one bundle at a time");
            }
            Some(_) => {}
            None => self.learned.rtx.push(pair),
        }
    }
}

/// The beginning of what was given, in print.
fn shown(text: &str) -> String {
    text.chars().take(20).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// As LiveKit offers to a subscriber, shortened.
    const OFFER: &str = "v=0\r\no=- 1 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\na=group:BUNDLE 0 1\r\n\
        a=extmap-allow-mixed\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111 63\r\na=mid:0\r\na=rtpmap:111 opus/48000/2\r\n\
        a=fmtp:111 minptime=10;useinbandfec=1\r\na=rtpmap:63 red/48000/2\r\na=fmtp:63 111/111\r\n\
        a=extmap:1 urn:ietf:params:rtp-hdrext:ssrc-audio-level\r\nm=video 9 UDP/TLS/RTP/SAVPF 96 97 98 99\r\n\
        a=rtpmap:96 VP8/90000\r\na=rtcp-fb:96 nack\r\na=rtpmap:97 rtx/90000\r\na=fmtp:97 apt=96\r\n\
        a=rtpmap:98 VP9/90000\r\na=rtpmap:99 rtx/90000\r\na=fmtp:99 apt=98;rtx-time=3000\r\n\
        a=extmap:12/sendonly https://aomediacodec.github.io/av1-rtp-spec/#dependency-descriptor-rtp-header-extension\r\n\
        a=extmap:3 http://www.webrtc.org/experiments/rtp-hdrext/abs-send-time\r\n\
        a=extmap:4097 urn:ietf:params:rtp-hdrext:framemarking\r\nm=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\n";

    #[test]
    fn offer_says_ids_payload_types_and_retransmissions() {
        let learned = Learned::parse(OFFER, "offer.sdp").unwrap();
        let media = MediaTable {
            dd: ExtensionId::new(12),
            ..MediaTable::default()
        };
        assert_eq!((learned.media, &*learned.audio), (media, &[63, 111][..]));
        assert_eq!(
            (&*learned.video, &*learned.rtx),
            (&[96, 98][..], &[(97, 96), (99, 98)][..])
        );
        let toml = learned.to_toml("conf");
        assert_eq!(
            toml,
            "[media.conf]\ndd = 12\n\n[rtp_profile]\naudio = [63, 111]\nvideo = [96, 98]\n\n\
             # in [[flow]] of the video: rtx = \"97:96,99:98\"\n"
        );
        let config = crate::Config::parse(&toml, "f").unwrap();
        assert_eq!(config.media.len(), 1);
        // Lines may end without a carriage return.
        assert_eq!(
            Learned::parse(&OFFER.replace("\r\n", "\n"), "f").unwrap(),
            learned
        );
    }

    #[test]
    fn bad_description_is_refused_whole_with_line_and_reason() {
        let bad = |from: &str, to: &str| {
            let text = OFFER.replace(from, to);
            assert_ne!(text, OFFER);
            let errors = Learned::parse(&text, "cam.sdp").unwrap_err();
            errors[0].to_string()
        };
        for (from, to, says) in [
            ("v=0\r\n", "x\r\n", "cam.sdp:1: does not begin with v=0"),
            ("t=0 0", "t 0 0", "cam.sdp:4: is no line of SDP"),
            ("s=-", "v=0", "cam.sdp:3: has a second line v="),
            ("m=audio 9", "m=audio", "cam.sdp:7: m= does not name"),
            ("rtpmap:96 VP8/90000", "rtpmap:96 VP8", "cam.sdp:15: rtpmap"),
            ("rtpmap:96", "rtpmap:128", "payload type \"128\""),
            ("apt=96", "apt=x", "fmtp apt has payload type \"x\""),
            (
                "fmtp:99 apt=98",
                "fmtp:97 apt=98",
                "repeats 98, and 96 before",
            ),
            ("extmap:3 ", "extmap:15 ", "extmap has id 15"),
            ("extmap:3 ", "extmap:300 ", "extmap has id 300"),
            ("extmap:3 ", "extmap:3", "extmap names no id"),
            (
                "extmap:4097 urn:ietf:params:rtp-hdrext:framemarking",
                "extmap:4 https://aomediacodec.github.io/av1-rtp-spec/#dependency-descriptor-rtp-header-extension",
                "id 4, which had id 12",
            ),
        ] {
            let said = bad(from, to);
            assert!(said.contains(says), "{said}");
        }
        let both = OFFER.replace("rtpmap:98 VP9", "rtpmap:111 VP9");
        let said = Learned::parse(&both, "f").unwrap_err()[0].to_string();
        assert!(
            said.contains("payload type 111 is that of audio and of video"),
            "{said}"
        );
        assert!(
            Learned::parse("v=0\n", "f").unwrap_err()[0]
                .message
                .contains("no line m=")
        );
        assert!(Learned::parse(&"a=b\n".repeat(300_000), "f").is_err());
        assert_eq!(
            Learned::parse(&"x\n".repeat(99), "f").unwrap_err().len(),
            MAX_ERRORS
        );
    }

    proptest! {
        /// Lines of a description in any order, cut anywhere: it is read or refused, and what is read can be written.
        #[test]
        fn any_lines_are_read_or_refused(
            lines in prop::collection::vec((0..32usize, 0..90usize), 0..40), noise in "\\PC{0,30}") {
            let all: Vec<&str> = OFFER.split("\r\n").collect();
            let mut text = String::from("v=0\n");
            for (line, cut) in lines {
                let line = all.get(line).copied().unwrap_or(&noise);
                text.extend(line.chars().take(cut + 8));
                text.push('\n');
            }
            if let Ok(learned) = Learned::parse(&text, "f") {
                let config = crate::Config::parse(&learned.to_toml("a.b"), "f");
                prop_assert!(config.is_ok(), "{config:?}");
            }
            let _ = Learned::parse(&noise, "f");
        }
    }
}
