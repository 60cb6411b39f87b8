//! Names in the place of addresses.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which address got which name.
#[derive(Debug, Default)]
pub(super) struct Names {
    all: HashMap<String, String>,
}

/// What an address may consist of.
fn part(c: char) -> bool {
    c.is_ascii_hexdigit() || c == ':' || c == '.'
}

impl Names {
    /// The text with a name for each address; those of this host alone (127.0.0.1, ::1) and of nobody (0.0.0.0) stay.
    pub(super) fn hide(&mut self, text: &str) -> String {
        let mut hidden = String::with_capacity(text.len());
        let mut rest = text;
        let mut before = ' ';
        while let Some(first) = rest.chars().next() {
            let end = if part(first) {
                rest.find(|c| !part(c)).unwrap_or(rest.len())
            } else {
                first.len_utf8()
            };
            let (token, behind) = rest.split_at(end);
            let after = behind.chars().next().unwrap_or(' ');
            let word = |c: char| c.is_alphanumeric() && !part(c);
            if part(first) && !word(before) && !word(after) {
                hidden.push_str(&self.token(token));
            } else {
                hidden.push_str(token);
            }
            before = token.chars().next_back().unwrap_or(' ');
            rest = behind;
        }
        hidden
    }

    /// Such a token may have punctuation around the address, and a port behind it.
    fn token(&mut self, token: &str) -> String {
        let core = token.trim_end_matches(['.', ':']);
        let core = if core.is_empty() || token.parse::<Ipv6Addr>().is_ok() {
            token
        } else {
            core
        };
        let tail = &token[core.len()..];
        if let Some(name) = self.name(core) {
            return name + tail;
        }
        if let Some((address, port)) = core.rsplit_once(':')
            && address.parse::<Ipv4Addr>().is_ok()
            && let Some(name) = self.name(address)
        {
            return format!("{name}:{port}{tail}");
        }
        token.into()
    }

    fn name(&mut self, address: &str) -> Option<String> {
        let groups: Vec<&str> = address.split(':').collect();
        let hardware = groups.len() == 6 && groups.iter().all(|g| g.len() == 2);
        let (key, kind) = if hardware {
            if address == "00:00:00:00:00:00" || address.eq_ignore_ascii_case("ff:ff:ff:ff:ff:ff") {
                return None;
            }
            (address.to_lowercase(), "mac")
        } else {
            let ip: IpAddr = address.parse().ok()?;
            if ip.is_loopback() || ip.is_unspecified() {
                return None;
            }
            let kind = if ip.is_ipv4() { "ipv4" } else { "ipv6" };
            (ip.to_string(), kind)
        };
        let next = self.all.len() + 1;
        let name = self.all.entry(key);
        Some(name.or_insert_with(|| format!("{kind}-{next}")).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_becomes_the_same_name_everywhere() {
        let mut names = Names::default();
        for (text, hidden) in [
            ("v0/10.0.0.2, eth0", "v0/ipv4-1, eth0"),
            (
                "\"10.0.0.2\":\"10.0.0.3:5004\"",
                "\"ipv4-1\":\"ipv4-2:5004\"",
            ),
            ("to [2001:db8::7]:80.", "to [ipv6-3]:80."),
            ("v0/2001:db8::/32", "v0/ipv6-4/32"),
            ("2001:DB8:0::7 wins", "ipv6-3 wins"),
            (
                "link/ether 02:00:5e:10:00:01 brd ff:ff:ff:ff:ff:ff",
                "link/ether mac-5 brd ff:ff:ff:ff:ff:ff",
            ),
            ("gone: 10.0.0.3.", "gone: ipv4-2."),
            ("fe80::1%eth0", "ipv6-6%eth0"),
        ] {
            assert_eq!(names.hide(text), hidden);
        }
    }

    #[test]
    fn other_numbers_and_words_stay() {
        let mut names = Names::default();
        for text in [
            "Linux 6.18.44-fc-v657",
            "03:00:06.352859Z 2026-11-28T03:00:06+0000",
            "127.0.0.1 ::1 0.0.0.0 :: qdisc bestby bb: root",
            "face: b0b, dead.beef::: add 1.2.3 x1.2.3.4y äbc",
            "handle 8001: parent ffff:fff1",
            "",
        ] {
            assert_eq!(names.hide(text), text);
        }
    }
}
