//! Paths and bodies common to all of the control API.

use serde::{Deserialize, Serialize};

/// Paths of the control API. Every change (POST, PUT, DELETE) is answered with [`crate::Done`]. POST /v1/explain and
/// POST /v1/discover change nothing. Names and addresses in a path are percent-encoded.
pub mod path {
    /// GET: [`crate::Status`].
    pub const STATUS: &str = "/v1/status";
    /// GET: list of [`crate::InterfaceInfo`]; POST [`crate::AttachRequest`] attaches or changes, PUT the same
    /// `/{dev}` changes only; DELETE `/{dev}`; POST `/{dev}/upgrade`.
    pub const INTERFACES: &str = "/v1/interfaces";
    /// GET: list of [`crate::FlowInfo`]; POST [`crate::FlowAdds`]; GET, PUT [`crate::FlowSet`], DELETE `/{name}`
    /// (`?save=true` removes it from the file, too).
    pub const FLOWS: &str = "/v1/flows";
    /// POST: reads the configuration file again, all of it or nothing.
    pub const RELOAD: &str = "/v1/reload";
    /// GET `/diff`: [`crate::ConfigDiff`].
    pub const CONFIG: &str = "/v1/config";
    /// GET: [`crate::SessionList`]; PUT [`crate::SessionSet`] `/{addr}`.
    pub const SESSIONS: &str = "/v1/sessions";
    /// GET: [`crate::MediaList`]; PUT [`crate::MediaTable`] `/{name}` writes a `[media.NAME]` table to the file.
    pub const MEDIA: &str = "/v1/media";
    /// GET: [`crate::TcpReal`]; PUT [`crate::RealRequest`] switches it on, DELETE off.
    pub const TCP_REAL: &str = "/v1/tcp-real";
    /// GET: [`crate::Stats`].
    pub const STATS: &str = "/v1/stats";
    /// GET: [`crate::Event`], one per line, for as long as the client listens. Empty lines say "still here".
    pub const EVENTS: &str = "/v1/events";
    /// GET: [`crate::Doctor`].
    pub const DOCTOR: &str = "/v1/doctor";
    /// POST [`crate::DiscoverRequest`]: [`crate::Discovery`], after the seconds that were asked for.
    pub const DISCOVER: &str = "/v1/discover";
    /// POST [`crate::ExplainRequest`]: [`crate::Explanation`].
    pub const EXPLAIN: &str = "/v1/explain";
}

/// Body of every answer with a 4xx or 5xx status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorBody {
    /// What went wrong.
    pub error: ErrorDetail,
}

/// What was tried, why it failed, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorDetail {
    /// What was tried, on which object, and why it failed; one sentence.
    pub message: String,
    /// What the operator can do about it; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hint: String,
}

/// Answer to a change that worked.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// What was done; one sentence for the operator.
    pub message: String,
    /// What the operator should know, e.g. that an earlier rule hides the new one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

/// GET /v1/config/diff: what a reload would change.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigDiff {
    /// The file.
    pub file: String,
    /// One line each, in the order in which it would be done.
    pub changes: Vec<String>,
}
