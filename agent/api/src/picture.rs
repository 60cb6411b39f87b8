//! What rules say of pictures: what a lost frame takes along, what frames are worth.

use std::fmt;
use std::str::FromStr;

use crate::Priority;
use crate::value::ValueError;

const ROLES_ALLOWED: &str = "five priorities from 0 to 7, of key frames, of links of temporal level 0, 1 and 2, and of frames that no other needs, none before one that it needs, for example 3,4,5,6,7";

words!(
    /// What happens to frames that need one which was given up.
    Chain, "chain", "auto, skip or off", {
        /// They are not sent if a key frame is in sight and no repairs of the stream were seen.
        Auto = "auto",
        /// They are not sent if a key frame is in sight, repairs or not.
        Skip = "skip",
        /// They are sent.
        Off = "off",
    }
);

/// The priorities of frames by what they are for, none more important than one that it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Roles([Priority; 5]);

impl Roles {
    /// What each of them is of, in their order.
    pub const NAMES: [&'static str; 5] = [
        "key frames",
        "links of level 0",
        "links of level 1",
        "links of level 2",
        "frames that no other needs",
    ];

    /// Of key frames, of links of temporal level 0, 1 and 2 or above, of frames that no other needs.
    pub const fn priorities(self) -> [Priority; 5] {
        self.0
    }
}

impl FromStr for Roles {
    type Err = ValueError;

    fn from_str(s: &str) -> Result<Self, ValueError> {
        let refuse = |problem: String| ValueError::new("roles", s, problem, ROLES_ALLOWED);
        let parts: Vec<&str> = s.split(',').map(str::trim).collect();
        let mut roles = [Priority::default(); 5];
        if parts.len() != roles.len() {
            return Err(refuse(match parts.len() {
                1 => "has 1 priority, not 5".into(),
                n => format!("has {n} priorities, not 5"),
            }));
        }
        for (role, part) in roles.iter_mut().zip(parts) {
            *role = part
                .parse()
                .map_err(|e: ValueError| refuse(e.to_string()))?;
        }
        if let Some(at) = (1..roles.len()).find(|at| roles[*at] < roles[at - 1]) {
            return Err(refuse(format!(
                "gives {} priority {}, before the {} of {}, which they need",
                Self::NAMES[at],
                roles[at],
                roles[at - 1],
                Self::NAMES[at - 1],
            )));
        }
        Ok(Self(roles))
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.pad(&list.join(","))
    }
}

string_value!(Roles, "five priorities such as \"3,4,5,6,7\"");

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn roles_are_five_priorities_none_before_what_it_needs() {
        let roles: Roles = "3, 4,5,6,7".parse().unwrap();
        assert_eq!(roles.priorities().map(Priority::get), [3, 4, 5, 6, 7]);
        assert!("0,0,0,0,0".parse::<Roles>().is_ok());
        for (bad, why) in [
            ("", "1 priority"),
            ("3", "not 5"),
            ("3,4,5,6", "4 priorities"),
            ("3,4,5,6,7,7", "6 priorities"),
            ("3,4,5,6,8", "out of range"),
            ("3,4,five,6,7", "whole number"),
            ("3,4,,6,7", "whole number"),
            ("3,5,4,6,7", "level 1 priority 4"),
            (
                "7,3,3,3,3",
                "level 0 priority 3, before the 7 of key frames",
            ),
        ] {
            let error = bad.parse::<Roles>().unwrap_err();
            assert!(error.problem.contains(why), "{bad}: {error}");
        }
    }

    proptest! {
        #[test]
        fn printed_roles_parse_to_same_roles(mut of in prop::array::uniform5(0u64..8)) {
            of.sort_unstable();
            let text = of.map(|n| n.to_string()).join(",");
            let roles: Roles = text.parse().unwrap();
            prop_assert_eq!(roles.to_string(), text);
        }

        #[test]
        fn parsing_any_text_never_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<Roles>();
        }
    }
}
