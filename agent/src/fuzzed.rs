//! What comes from outside, as bytes: requests of the control API, files, answers of netlink. Each
//! function takes any bytes and panics if the agent does what it must not. The fuzzers in `tests/fuzz/` are guided by
//! coverage; the tests here change real inputs.

use bestby_api::{
    AttachRequest, CgroupPath, Config, DevName, Document, ExplainRequest, FlowAdd, FlowName,
    FlowRule, FlowSet, Learned, RealRequest, RtpProfile, SessionSet,
};
use serde::{Serialize, de::DeserializeOwned};

use crate::feeds::rtt;
use crate::kernel::netlink::{Answers, Raw, attributes, encode};
use crate::kernel::tc::{Link, Qdisc};
use crate::observed::names::Resolve;
use crate::plan::rules::compile;

/// A host on which each name is something.
struct Host;

impl Resolve for Host {
    fn ifindex(&self, dev: &DevName) -> Option<u32> {
        u32::try_from(dev.as_str().len()).ok()
    }
    fn cgroup(&self, path: &CgroupPath) -> Option<(u64, u32)> {
        Some((path.as_str().len() as u64, 1))
    }
}

/// A request that is accepted says the same when it is written and read again, as the records of the agent are.
fn again<T>(bytes: &[u8]) -> Option<T>
where
    T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    let value: T = serde_json::from_slice(bytes).ok()?;
    let written = serde_json::to_vec(&value).expect("what was read can be written");
    let read: T = serde_json::from_slice(&written).unwrap_or_else(|e| {
        let written = String::from_utf8_lossy(&written);
        panic!("{e}: {written}, which was written for {value:?}")
    });
    assert_eq!(read, value);
    Some(value)
}

/// A rule that passed the check compiles, or is refused as one of too many combinations.
fn compiled(rule: &FlowRule) {
    if rule.check().is_ok()
        && let Ok(compiled) = compile(&[(1, rule)], RtpProfile::default(), &Host)
    {
        assert!(!compiled.rules.is_empty());
    }
}

/// A request to the control API. The first byte says which: its body, or the name in its path.
pub fn request(bytes: &[u8]) {
    let Some((which, body)) = bytes.split_first() else {
        return;
    };
    match which % 8 {
        0 => drop(again::<AttachRequest>(body)),
        1 => {
            if let Some(add) = again::<FlowAdd>(body) {
                compiled(&add.flow);
            }
        }
        2 => {
            if let Some(set) = again::<FlowSet>(body) {
                let rule = FlowRule::new("a".parse().expect("a name"));
                if let Ok(changed) = set.change.apply(&rule) {
                    compiled(&changed);
                }
            }
        }
        3 => drop(again::<SessionSet>(body)),
        4 => drop(again::<RealRequest>(body)),
        5 => drop(again::<ExplainRequest>(body)),
        6 => {
            if let Ok(item) = std::str::from_utf8(body) {
                let _ = (item.parse::<DevName>(), item.parse::<FlowName>());
            }
        }
        _ => drop(again::<Config>(body)),
    }
}

/// A configuration file. One that is accepted says the same when it is written anew, keeps its text until it is
/// changed, and takes each of its own rules again.
pub fn config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let config = match Config::parse(text, "f") {
        Ok(config) => config,
        Err(errors) => {
            let lines = u32::try_from(text.lines().count().max(1)).unwrap_or(u32::MAX);
            assert!(!errors.is_empty());
            for e in errors {
                assert!((1..=lines + 1).contains(&(e.line as u32)), "{e}: {text}");
            }
            return;
        }
    };
    let _ = config.warnings();
    let written = config.to_toml();
    let read = Config::parse(&written, "f").unwrap_or_else(|e| panic!("{e:?}: {written}"));
    assert_eq!(read, config, "{written}");
    let mut document = Document::parse(text, "f").unwrap_or_else(|e| panic!("{e:?}: {text}"));
    for flow in &config.flows {
        compiled(flow);
        document
            .put_flow(flow, None)
            .unwrap_or_else(|e| panic!("{e:?}: {}", document.text()));
    }
    for (name, table) in &config.media {
        document
            .put_media(name, *table)
            .unwrap_or_else(|e| panic!("{e:?}: {}", document.text()));
    }
    assert_eq!(document.config(), &config, "{}", document.text());
}

/// A session description. Of one that is accepted the tables are a valid file; one that is refused names a line.
pub fn sdp(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    match Learned::parse(&text, "f") {
        Ok(learned) => {
            let tables = learned.to_toml("conf");
            Config::parse(&tables, "f").unwrap_or_else(|e| panic!("{e:?}: {tables}"));
        }
        Err(errors) => {
            let lines = text.lines().count().max(1);
            assert!(!errors.is_empty());
            for e in errors {
                assert!((1..=lines).contains(&e.line), "{e}: {text}");
            }
        }
    }
}

/// Datagrams of netlink, each behind its length (two bytes, little-endian): answers to a request of number 0, and of
/// `sock_diag`.
pub fn netlink(mut bytes: &[u8]) {
    let (mut answers, mut sockets) = (Answers::default(), Vec::new());
    while let Some((length, rest)) = bytes.split_first_chunk() {
        let length = usize::from(u16::from_le_bytes(*length)).min(rest.len());
        let (datagram, rest) = rest.split_at(length);
        bytes = rest;
        let _ = answers.take(datagram, 0);
        let _ = rtt::understood(datagram, &mut sockets);
    }
    for Raw { kind, body } in &answers.all {
        for start in [0, 16, 20] {
            let all = attributes(body.get(start..).unwrap_or_default());
            // What is saved of a qdisc goes back to the kernel.
            assert_eq!(attributes(&encode(&all)), all);
        }
        for kind in [*kind, libc::RTM_NEWLINK, libc::RTM_NEWQDISC] {
            let raw = Raw {
                kind,
                body: body.clone(),
            };
            let _ = (Link::read(&raw), Qdisc::read(&raw));
        }
    }
    for socket in &sockets {
        let _ = rtt::measured(socket, 1_000_000_000);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::Index;

    use super::*;

    /// One change: what, where, with which byte.
    type Change = (u8, Index, u8);

    fn changed(input: &[u8], changes: &[Change], words: &[&[u8]]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for (what, place, byte) in changes {
            let at = place.index(bytes.len() + 1);
            let word = words[usize::from(*byte) % words.len()];
            match what % 7 {
                0 if at < bytes.len() => bytes[at] = *byte,
                1 if at < bytes.len() => bytes[at] ^= 1 << (byte % 8),
                2 => bytes.insert(at, *byte),
                3 if at < bytes.len() => drop(bytes.remove(at)),
                4 => bytes.truncate(at),
                5 => drop(bytes.splice(at..at, word.iter().copied())),
                _ => {
                    let end = (at + usize::from(*byte)).min(bytes.len());
                    let piece = bytes[at..end].to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
        bytes
    }

    /// Runs a target with changed inputs, as `tests/fuzz/inputs` has them.
    fn mutants(name: &str, target: fn(&[u8]), words: &[&[u8]]) {
        let dir = format!("{}/../tests/fuzz/inputs/{name}", env!("CARGO_MANIFEST_DIR"));
        let mut paths: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|file| file.unwrap().path())
            .collect();
        paths.sort();
        let inputs: Vec<Vec<u8>> = paths.iter().map(|p| std::fs::read(p).unwrap()).collect();
        for input in &inputs {
            target(input);
        }
        let changes = prop::collection::vec(any::<Change>(), 0..6);
        let config = ProptestConfig {
            cases: 4_000,
            failure_persistence: None,
            ..ProptestConfig::default()
        };
        proptest!(config, |(which: Index, changes in changes)| {
            target(&changed(&inputs[which.index(inputs.len())], &changes, words));
        });
    }

    #[test]
    fn changed_request_is_refused_or_reads_back_equal() {
        let words: &[&[u8]] = &[
            b"\"",
            b"null",
            b"0",
            b"-1",
            b"1e99",
            b"18446744073709551616",
            b"{",
            b"}",
            b"[",
            b",",
            b"0x",
            b"ms",
            b"/0",
            b"::",
            b"%00",
            b"\\u0000",
            b"\xff",
            b"\"rate\":\"0\"",
        ];
        mutants("request", request, words);
    }

    #[test]
    fn changed_file_is_refused_at_a_line_or_reads_back_equal() {
        let words: &[&[u8]] = &[
            b"\n",
            b"[[flow]]\n",
            b"[agent]\n",
            b"= ",
            b"\"",
            b"'''",
            b"#",
            b"nan",
            b"-1",
            b"0x",
            b"1_000",
            b"1979-05-27",
            b"priority = 1\n",
            b"\r",
            b"\\u0000",
            b"name = \"b\"\n",
            b"9223372036854775808",
            b"\xef\xbb\xbf",
        ];
        mutants("config", config, words);
    }

    #[test]
    fn changed_description_is_refused_at_a_line_or_makes_a_valid_file() {
        let words: &[&[u8]] = &[
            b"\n",
            b"\r\n",
            b"a=extmap:",
            b"a=rtpmap:",
            b"a=fmtp:",
            b"apt=",
            b"m=audio 9 RTP/AVP 0\n",
            b"urn:ietf:params:rtp-hdrext:framemarking",
            b" ",
            b":",
            b"/",
            b"255",
            b"4294967296",
            b"\xff",
        ];
        mutants("sdp", sdp, words);
    }

    #[test]
    fn changed_answers_of_netlink_are_read_without_a_panic() {
        let words: &[&[u8]] = &[
            &[0; 4],
            &[0xff; 4],
            &[16, 0, 0, 0],
            &[15, 0, 0, 0],
            &[4, 0, 1, 0],
            &[3, 0, 1, 0],
            &[5, 0, 2, 0],
            &[0xff, 0xff, 1, 0],
            &[1, 0, 0, 0x80],
        ];
        mutants("netlink", netlink, words);
    }
}
