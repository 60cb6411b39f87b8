//! Which traffic a scenario asks for: the model's name and its parameters.

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::traffic::{Schedule, conference};

/// `[traffic]` of a scenario file. A model is one variant here and one arm in
/// [`Model::schedule`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "model", rename_all = "lowercase")]
pub enum Model {
    /// The conference of SFDPS §4.1; it has no parameters.
    Conference(Nothing),
}

/// The parameters of a model that has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

impl Model {
    /// `seconds` of it; the same for the same seed.
    pub fn schedule(&self, seconds: u64, seed: u64) -> Result<Schedule> {
        Ok(match self {
            Self::Conference(Nothing {}) => conference::schedule(seconds, seed),
        })
    }

    /// Whether one socket sends each stream to a destination of its own, as a relay
    /// does; otherwise all streams go to one receiver.
    pub fn is_relay(&self) -> bool {
        match self {
            Self::Conference(_) => false,
        }
    }
}
