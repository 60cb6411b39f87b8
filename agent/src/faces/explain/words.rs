//! The words of an explanation.

use bestby_api::{ExplainRequest, Mode, NO_RULE, PacketDescription, Rate};
use bestby_bpf::abi;

use crate::faces::media::TooLarge;
use crate::kernel::explain::Answer;
use crate::observed::attached::Attached;

pub(super) const fn treatment_name(treatment: u32) -> Option<&'static str> {
    match treatment {
        abi::BB_TREAT_FORWARD => Some("forward"),
        abi::BB_TREAT_DISCARD => Some("discard"),
        abi::BB_TREAT_TRUNCATE => Some("truncate"),
        _ => None,
    }
}

/// What no source has said anything of.
pub(super) const NOTHING: abi::bb_said = abi::bb_said {
    deadline: 0,
    lifetime: 0,
    done: 1,
    no_deadline: 0,
    counts: 0,
    priority: abi::BB_PRIORITY_NONE as u8,
    treatment: abi::BB_TREAT_DEFAULT as u8,
    pad: [0; 3],
};

/// Time left of what was said, ns; `None`: no deadline.
pub(super) fn left(said: &abi::bb_said, now: u64) -> Option<i64> {
    match (said.lifetime, said.deadline) {
        (0, 0) => None,
        (0, deadline) => Some(deadline.wrapping_sub(now).cast_signed()),
        (lifetime, _) => i64::try_from(lifetime).ok(),
    }
}

/// The fields that are said after a step, and were not before it.
pub(super) fn decided(before: &abi::bb_said, after: &abi::bb_said) -> Vec<String> {
    let has_time = |s: &abi::bb_said| s.deadline != 0 || s.lifetime != 0 || s.no_deadline != 0;
    let has_priority = |s: &abi::bb_said| u32::from(s.priority) < abi::BB_PRIORITIES;
    [
        ("deadline", has_time(before), has_time(after)),
        ("priority", has_priority(before), has_priority(after)),
        ("treatment", before.treatment != 0, after.treatment != 0),
    ]
    .into_iter()
    .filter(|(_, was, is)| !was && *is)
    .map(|(field, ..)| field.to_string())
    .collect()
}

/// What the mark says, or why it does not count.
pub(super) fn mark_says(
    mark: u32,
    counts: Option<&abi::bb_said>,
    answer: &Answer,
    now: u64,
) -> String {
    let Some(said) = counts else {
        return if answer.counted(abi::BB_G_FORWARDED_MARK) {
            "the mark of a forwarded packet is not believed: forwarded_marks is false in the configuration"
        } else if mark == 0 {
            "no mark"
        } else {
            "the mark is not bestby's: it says nothing"
        }
        .into();
    };
    let time = match left(said, now) {
        None => "no deadline".to_string(),
        Some(ns) => format!("deadline in {}", ms(ns)),
    };
    let priority = match u32::from(said.priority) {
        n @ 0..abi::BB_PRIORITIES => n.to_string(),
        _ => "not said".into(),
    };
    let treatment = treatment_name(said.treatment.into()).unwrap_or("not said");
    format!("{time}, priority {priority}, treatment {treatment}")
}

/// What happens to the packet, in a sentence.
pub(super) fn verdict(
    request: &ExplainRequest,
    attached: Option<&Attached>,
    answer: &Answer,
    lifetime_ns: Option<i64>,
    treatment: &str,
) -> String {
    let Some(attached) = attached else {
        let dev = &request.dev;
        return format!("interface {dev} is not attached: the packet is sent untouched");
    };
    let explained = &answer.explained;
    let Some(left) = lifetime_ns else {
        return if explained.control != 0 {
            "the packet is signalling: it is never stale, and dropped only when the queue is full"
        } else {
            "the packet has no deadline: it is never stale, and dropped only when the queue is full"
        }
        .into();
    };
    let owd = explained.owd_ns.cast_signed();
    if explained.stale != 0 {
        return format!(
            "it is stale already: {} left, {} needed to arrive; treatment {treatment}",
            ms(left),
            ms(owd)
        );
    }
    let then = match (attached.request.observe, attached.mode) {
        (true, _) => "; counted at once if the model says it cannot, and sent all the same",
        (_, Mode::Tc) if answer.session.key.media != 0 => {
            "; refused at once if the model says it cannot"
        }
        _ => "",
    };
    let within = format!(
        "it must leave within {}, or it is stale (treatment {treatment}){then}",
        ms(left - owd)
    );
    if explained.reason == abi::BB_DROP_PREDICTED.cast_signed() {
        format!("{within}; on an idle link it cannot: its transmission takes longer")
    } else {
        within
    }
}

/// What the classifier took the payload for; empty if the description has none.
pub(super) fn read_as(p: &PacketDescription, explained: &abi::bb_explained) -> String {
    let Some(payload) = &p.payload else {
        return String::new();
    };
    let (first, second) = (payload[0], payload.get(1).copied().unwrap_or(0));
    let inside = if explained.inner != 0 {
        ", 8 bytes further in (RIST's main profile)"
    } else {
        ""
    };
    if u32::from(explained.rtp) == abi::BB_STREAM_TS {
        return format!(
            "MPEG-TS{}{inside}",
            if p.rtp.is_some() { " in RTP" } else { "" }
        );
    }
    if explained.rtp != 0 {
        let kind = explained.rtp & 0x7f;
        let source = p.ssrc.map_or(0, |ssrc| ssrc.get());
        return format!("RTP, payload type {kind}, ssrc {source:#x}{inside}");
    }
    if explained.control != 0 {
        let what = match (first, second) {
            (0x80.., 192..=223) => "RTCP",
            (0x80, 0) => "a handshake of SRT: what its flow sends from now on is read as SRT's",
            (0, 0) if explained.inner != 0 => "RTCP",
            (0, 0) => "a keep-alive of RIST's main profile",
            (0..4, _) => "STUN",
            _ => "DTLS",
        };
        return format!("signalling: {what}{inside}");
    }
    let is_ts = |payload: &[u8]| payload[0] == 0x47 && payload.get(188).is_none_or(|b| *b == 0x47);
    let what = match payload[..] {
        [0x16, 0xfe, ..] | [0x17, 0xfe, ..] => "DTLS, or SRT's",
        _ if is_ts(payload) => {
            "MPEG-TS, perhaps: each packet has a lifetime of its own until 32 of its stream's pictures were read"
        }
        [0x20..=0x3f, 0, 0x88, 0xb6, ..] => {
            "RIST's main profile, encrypted: nothing in it can be read"
        }
        [0..0x80, ..] if payload.len() >= 16 => {
            "data of SRT, perhaps: a flow is known by its handshake, or when 16 packets in a row go on like SRT's"
        }
        _ => "",
    };
    let rest = if what.is_empty() {
        String::new()
    } else {
        format!(" ({what})")
    };
    format!("a datagram of which nothing is known{rest}")
}

/// What a description leaves open: whether the packet is forwarded, and what its payload is. `mark`: it has bestby's.
pub(super) fn notes(
    p: &PacketDescription,
    mark: bool,
    flow: &str,
    forwarded_marks: bool,
) -> Vec<String> {
    if mark {
        // A mark wins over what the payload looks like.
        return vec![
            if forwarded_marks {
                "The mark counts on forwarded packets, too: forwarded_marks is true in the configuration."
            } else {
                "Of a forwarded packet this mark is not believed: forwarded_marks is false in the configuration."
            }
            .into(),
        ];
    }
    if p.proto != bestby_api::Proto::Udp || p.rtp.is_some() || p.payload.is_some() {
        return Vec::new();
    }
    let says = if flow == NO_RULE {
        "DTLS application data is plain traffic.".into()
    } else {
        format!("DTLS application data is what flow rule \"{flow}\" says.")
    };
    vec![
        "STUN, RTCP and DTLS handshakes are signalling: priority 0, never stale, whatever a rule says.".into(),
        says,
    ]
}

/// Of a packet on the port behind that of the media which this rule covers.
pub(super) fn rtcp(
    p: &PacketDescription,
    explained: &abi::bb_explained,
    media: &str,
) -> Option<String> {
    let is = match (&p.payload, p.rtp) {
        (None, None) => "RTCP here is",
        (Some(payload), _)
            if explained.control != 0 && matches!(payload[..], [0x80..=0xff, 192..=223, ..]) =>
        {
            "It is"
        }
        _ => return None,
    };
    Some(format!(
        "{is} that of the media of flow rule \"{media}\", one port before: it goes first, and its reports measure the \
         delay."
    ))
}

/// Of a packet, or of the frames of its rule, that need more of the link than the time that is left.
pub(super) fn too_large(
    len: u32,
    largest: u32,
    rate: Option<Rate>,
    left: i64,
    owd: u64,
) -> Option<String> {
    let (bytes, whose) = if largest > len {
        (largest, "The largest frame of its rule so far has")
    } else {
        (len, "It has")
    };
    let (rate, left) = (rate?, u64::try_from(left).ok()?);
    let of = TooLarge::frames(bytes, rate, left, owd)?;
    Some(format!(
        "{whose} {bytes} bytes, which take {} ms of {rate}: none of that size leaves whole in time. It needs a lifetime \
         of {} ms.",
        of.takes_ms, of.needs_ms
    ))
}

/// What a header alone is worth to the receiver of this packet.
pub(super) fn header_alone(p: &PacketDescription, treatment: &str) -> Option<String> {
    if treatment != "truncate" {
        return None;
    }
    let says = match p.rtp {
        Some(_) => {
            "Of SRTP the header alone fails authentication: the receiver drops it, and only what reads RTP \
             without the keys learns which packet is missing."
        }
        None => {
            "Of QUIC the header alone is an empty datagram, which the receiver ignores: `discard` does the \
             same at no cost."
        }
    };
    Some(says.into())
}

fn ms(ns: i64) -> String {
    format!("{:.2} ms", ns as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_tells_what_the_description_leaves_open() {
        let of = |text: &str, mark, flow, forwarded_marks| {
            notes(&text.parse().unwrap(), mark, flow, forwarded_marks).join(" ")
        };
        let said = of("udp 10.0.0.2:5004", false, "audio", false);
        assert!(
            said.contains("signalling") && said.contains("\"audio\""),
            "{said}"
        );
        let said = of("udp 10.0.0.2:5004", false, NO_RULE, false);
        assert!(said.contains("plain"), "{said}");
        for other in ["udp 10.0.0.2:5004 rtp 111", "tcp 10.0.0.2:80"] {
            assert_eq!(of(other, false, "audio", false), "", "{other}");
        }
        let said = of("tcp 10.0.0.2:80", true, "audio", false);
        assert!(said.contains("false"), "{said}");
        let said = of("udp 10.0.0.2:80", true, "audio", true);
        assert!(
            said.contains("true") && !said.contains("signalling"),
            "{said}"
        );
    }

    #[test]
    fn header_alone_is_worth_nothing_to_srtp_and_quic() {
        let of = |text: &str, treatment| header_alone(&text.parse().unwrap(), treatment);
        let rtp = of("udp 10.0.0.2:5004 rtp 111", "truncate").unwrap();
        assert!(rtp.contains("SRTP"), "{rtp}");
        let other = of("udp 10.0.0.2:443", "truncate").unwrap();
        assert!(other.contains("QUIC"), "{other}");
        assert_eq!(of("udp 10.0.0.2:443", "discard"), None);
    }

    #[test]
    fn decided_is_what_a_step_adds() {
        let by_mark = abi::bb_said {
            lifetime: 200_000_000,
            priority: 2,
            counts: 1,
            ..NOTHING
        };
        assert_eq!(decided(&NOTHING, &by_mark), ["deadline", "priority"]);
        assert_eq!(left(&by_mark, 77), Some(200_000_000));
        let by_rule = abi::bb_said {
            treatment: abi::BB_TREAT_DISCARD as u8,
            ..by_mark
        };
        assert_eq!(decided(&by_mark, &by_rule), ["treatment"]);
        assert_eq!(decided(&by_rule, &by_rule), [""; 0]);
        let none = abi::bb_said {
            no_deadline: 1,
            ..NOTHING
        };
        assert_eq!(
            (decided(&NOTHING, &none), left(&none, 77)),
            (vec!["deadline".into()], None)
        );
        let past = abi::bb_said {
            deadline: 67,
            ..NOTHING
        };
        assert_eq!(left(&past, 77), Some(-10));
    }
}
