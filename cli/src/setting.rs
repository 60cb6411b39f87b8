//! Values of options: what is allowed, and `none`.

use std::str::FromStr;

use bestby_api::ValueError;

/// Reads a value and says, when refused, what is allowed.
pub(crate) fn value<T: FromStr<Err = ValueError>>(text: &str) -> Result<T, String> {
    text.parse()
        .map_err(|e: ValueError| format!("{}\n  allowed: {}", e.problem, e.allowed))
}

/// A value, or `none` to take it away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting<T>(pub(crate) Option<T>);

/// Reads a [`Setting`].
pub(crate) fn setting<T: FromStr<Err = ValueError>>(text: &str) -> Result<Setting<T>, String> {
    if text == "none" {
        return Ok(Setting(None));
    }
    value(text).map(|v| Setting(Some(v)))
}

/// The form the API wants: absent = as it was, null = no longer given.
pub(crate) fn change<T>(setting: Option<Setting<T>>) -> Option<Option<T>> {
    setting.map(|s| s.0)
}
