//! RTP's header extensions that say what a frame is for, and the ids that a server gives them.
//!
//! An id is agreed upon by signalling, which the kernel does not see. It finds the extension by its shape, under
//! whatever id; an id that is known is only tried first.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::value::ValueError;

/// Most `[media.NAME]` tables.
pub(crate) const MAX_MEDIA: usize = 64;

/// Id of a header extension (RFC 8285); 15 ends the list of the one-byte form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
pub struct ExtensionId(u8);

impl ExtensionId {
    const ALLOWED: &str = "a whole number from 1 to 14, or from 16 to 255";

    /// An id, if it can be one.
    pub const fn new(id: u8) -> Option<Self> {
        if id == 0 || id == 15 {
            None
        } else {
            Some(Self(id))
        }
    }

    /// The number.
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl FromStr for ExtensionId {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        let digits = !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
        let refuse = |problem| ValueError::new("extension id", s, problem, Self::ALLOWED);
        if !digits {
            return Err(refuse("not a whole number"));
        }
        s.parse()
            .ok()
            .and_then(Self::new)
            .ok_or_else(|| refuse("out of range"))
    }
}

impl fmt::Display for ExtensionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<u8> for ExtensionId {
    type Error = String;

    fn try_from(id: u8) -> Result<Self, String> {
        Self::new(id).ok_or_else(|| format!("extension id {id}; allowed: {}", Self::ALLOWED))
    }
}

impl From<ExtensionId> for u8 {
    fn from(id: ExtensionId) -> Self {
        id.0
    }
}

words!(
    /// Servers whose ids do not change from one session to the next.
    MediaProfile, "profile", "livekit, mediasoup, janus, jitsi or chrome", {
        /// LiveKit, to subscribers that have a connection of their own for that: in order of registration.
        Livekit = "livekit",
        /// mediasoup's constants. It does not forward the Dependency Descriptor.
        Mediasoup = "mediasoup",
        /// Janus' VideoRoom, which offers subscribers neither extension.
        Janus = "janus",
        /// Jicofo's constants.
        Jitsi = "jitsi",
        /// Chrome as the one that offers.
        Chrome = "chrome",
    }
);

impl MediaProfile {
    /// The ids that it gives.
    pub const fn ids(self) -> MediaIds {
        const fn id(id: u8) -> Option<ExtensionId> {
            ExtensionId::new(id)
        }
        let (dd, vfm) = match self {
            Self::Livekit => (id(1), None),
            Self::Mediasoup => (None, id(7)),
            Self::Janus => (None, None),
            Self::Jitsi => (id(11), id(9)),
            Self::Chrome => (id(12), None),
        };
        MediaIds { dd, vfm }
    }
}

/// Ids of the extensions that the classifier reads; absent: found by its shape alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaIds {
    /// Dependency Descriptor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dd: Option<ExtensionId>,
    /// Video Frame Marking (RFC 9626).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vfm: Option<ExtensionId>,
}

/// A `[media.NAME]` table, which rules name: ids of its own go before those of the profile.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MediaTable {
    /// A server whose ids are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<MediaProfile>,
    /// As [`MediaIds::dd`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dd: Option<ExtensionId>,
    /// As [`MediaIds::vfm`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vfm: Option<ExtensionId>,
}

impl MediaTable {
    /// The ids.
    pub fn ids(self) -> MediaIds {
        let of = self.profile.map(MediaProfile::ids).unwrap_or_default();
        MediaIds {
            dd: self.dd.or(of.dd),
            vfm: self.vfm.or(of.vfm),
        }
    }

    /// What is wrong with it as a whole.
    ///
    /// # Errors
    /// It says nothing, or one id is that of two extensions.
    pub fn check(self) -> Result<(), String> {
        if self == Self::default() {
            return Err("says nothing: give profile, dd or vfm".into());
        }
        match self.ids() {
            MediaIds {
                dd: Some(dd),
                vfm: Some(vfm),
            } if dd == vfm => Err(format!("gives dd and vfm the same id {dd}")),
            _ => Ok(()),
        }
    }

    /// The fields that are given, as the file has them.
    pub fn given(self) -> Vec<(&'static str, String)> {
        let profile = self.profile.map(|v| ("profile", v.to_string()));
        let dd = self.dd.map(|v| ("dd", v.to_string()));
        let vfm = self.vfm.map(|v| ("vfm", v.to_string()));
        [profile, dd, vfm].into_iter().flatten().collect()
    }
}

/// `[media]`: tables by their names.
pub type MediaTables = BTreeMap<MediaName, MediaTable>;

/// Whether packets are looked into for what their frames are for, and which ids of header extensions are tried first.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Media {
    /// They are, as far as their codec is known.
    Auto,
    /// Neither their payload nor their header extensions are.
    Off,
    /// They are; the ids are those of this `[media.NAME]` table, or of the profile of this name.
    Named(MediaName),
}

impl Media {
    /// The ids that are tried first; `None`: there is neither a table nor a profile of that name.
    pub fn ids(&self, tables: &MediaTables) -> Option<MediaIds> {
        let Self::Named(name) = self else {
            return Some(MediaIds::default());
        };
        match name.as_str().parse::<MediaProfile>() {
            Ok(profile) => Some(profile.ids()),
            Err(_) => tables.get(name).map(|table| table.ids()),
        }
    }

    /// What is wrong where [`Media::ids`] knows none, and what would be right.
    pub fn unknown(&self, tables: &MediaTables) -> Option<(String, String)> {
        if self.ids(tables).is_some() {
            return None;
        }
        let names: Vec<&str> = tables.keys().map(MediaName::as_str).collect();
        let known = match names.is_empty() {
            true => String::new(),
            false => format!("{}, ", names.join(", ")),
        };
        Some((
            format!("there is no table [media.{self}], and no profile of that name"),
            format!("known: {known}auto, off, livekit, mediasoup, janus, jitsi, chrome"),
        ))
    }
}

impl FromStr for Media {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        match s {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            name => name.parse().map(Self::Named).map_err(|e: ValueError| {
                let allowed =
                    "auto, off, a profile such as livekit, or the name of a [media] table";
                ValueError::new("media", s, e.problem, allowed)
            }),
        }
    }
}

impl fmt::Display for Media {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Auto => "auto",
            Self::Off => "off",
            Self::Named(name) => name.as_str(),
        })
    }
}

string_value!(
    Media,
    "auto, off, a profile such as livekit, or the name of a [media] table"
);

/// Name of a `[media.NAME]` table, as that of a flow rule; words that `--media` has already are none.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MediaName(crate::FlowName);

impl MediaName {
    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// May a table have this name, or is it that of a profile?
    ///
    /// # Errors
    /// It is.
    pub fn for_table(self) -> Result<Self, String> {
        match self.as_str().parse::<MediaProfile>() {
            Ok(profile) => Err(format!(
                "{profile} is the name of a profile, which rules may name without a table"
            )),
            Err(_) => Ok(self),
        }
    }
}

impl FromStr for MediaName {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        const ALLOWED: &str = "1 to 63 letters, digits, '_', '.' or '-', beginning with a letter or digit; not auto, \
                               off or none";
        let refuse = |problem: String| ValueError::new("media name", s, problem, ALLOWED);
        if matches!(s, "auto" | "off" | "none") {
            return Err(refuse("has a meaning already".into()));
        }
        let name = s.parse().map_err(|e: ValueError| refuse(e.problem))?;
        Ok(Self(name))
    }
}

impl fmt::Display for MediaName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

string_value!(MediaName, "the name of a [media] table");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_no_extension_can_have_are_refused() {
        for good in ["1", "14", "16", "255"] {
            assert_eq!(good.parse::<ExtensionId>().unwrap().to_string(), good);
        }
        for bad in ["0", "15", "256", "", "x", "-1", "4096"] {
            assert!(bad.parse::<ExtensionId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_of_a_table_go_before_those_of_its_profile() {
        let dd = |n| ExtensionId::new(n);
        let mut tables = MediaTables::new();
        let table = MediaTable {
            profile: Some(MediaProfile::Jitsi),
            dd: dd(3),
            vfm: None,
        };
        tables.insert("conf".parse().unwrap(), table);
        let ids = |text: &str| text.parse::<Media>().unwrap().ids(&tables);
        let of = |dd, vfm| MediaIds { dd, vfm };
        assert_eq!(ids("conf"), Some(of(dd(3), dd(9))));
        assert_eq!(ids("jitsi"), Some(of(dd(11), dd(9))));
        assert_eq!(ids("chrome"), Some(of(dd(12), None)));
        assert_eq!(ids("janus"), Some(of(None, None)));
        assert_eq!(ids("auto"), Some(of(None, None)));
        assert_eq!(ids("other"), None);
        let (what, known) = "other".parse::<Media>().unwrap().unknown(&tables).unwrap();
        assert!(what.contains("[media.other]") && known.contains("conf, auto"));
    }

    #[test]
    fn names_with_a_meaning_are_no_names_of_tables() {
        assert!("none".parse::<Media>().is_err());
        assert!("a b".parse::<Media>().is_err());
        let name: MediaName = "livekit".parse().unwrap();
        assert!(name.for_table().unwrap_err().contains("profile"));
        let all = [
            MediaTable::default(),
            MediaTable {
                dd: ExtensionId::new(9),
                vfm: ExtensionId::new(9),
                ..MediaTable::default()
            },
        ];
        assert!(all.iter().all(|table| table.check().is_err()));
    }
}
