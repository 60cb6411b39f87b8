//! How evenly a link was shared.

use serde::{Deserialize, Serialize};

/// Jain's index (Jain, Chiu, Hawe 1984, DEC-TR-301) of what each of n got: (Σx)² / (n Σx²).
/// 1: all got the same; 1/n: one got all. `None` of nothing; 1 if nobody got anything.
pub fn jain(shares: &[f64]) -> Option<f64> {
    if shares.is_empty() {
        return None;
    }
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    if squares == 0.0 {
        return Some(1.0);
    }
    Some(sum * sum / (shares.len() as f64 * squares))
}

/// Part of all bytes on the wire that were delivered which was that of the competing TCP
/// flows together. With n of them beside one media flow an even share is n / (n + 1).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored")]
pub struct TcpShare {
    /// Of 1.
    pub wire: f64,
}

/// The forms in which runs keep it. They differ in what JSON is made of, so that a figure
/// that is read and written again is never taken for one of the older form.
#[derive(Deserialize)]
#[serde(untagged)]
enum Stored {
    /// A bare number, up to November 2026: TCP's payload beside the media's bytes on the wire.
    Payload(f64),
    Wire {
        wire: f64,
    },
}

/// Bytes on the wire, and payload, of each TCP packet of the runs that kept [`Stored::Payload`].
const OF_THE_PAYLOAD: [f64; 2] = [519.0, 453.0];

impl From<Stored> for TcpShare {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::Wire { wire } => Self { wire },
            Stored::Payload(share) => {
                let [wire, payload] = OF_THE_PAYLOAD;
                let tcp = share * wire / payload;
                Self {
                    wire: tcp / (tcp + 1.0 - share),
                }
            }
        }
    }
}

impl TcpShare {
    /// Of `tcp` bytes on the wire of all competing flows and `media` bytes on the wire that
    /// arrived in the same time; `None` if nothing arrived.
    pub fn of(tcp: u64, media: u64) -> Option<Self> {
        let all = tcp + media;
        (all > 0).then(|| Self {
            wire: tcp as f64 / all as f64,
        })
    }

    /// TCP's rate beside a media rate of `media`, in its unit; `None` where no media arrived,
    /// of which a share says nothing.
    pub fn beside(self, media: f64) -> Option<f64> {
        (self.wire < 1.0).then(|| media * self.wire / (1.0 - self.wire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jain_of_textbook_cases() {
        let near = |a: Option<f64>, b: f64| a.is_some_and(|a| (a - b).abs() < 1e-12);
        assert_eq!(jain(&[]), None);
        assert!(near(jain(&[3.0]), 1.0));
        assert!(near(jain(&[2.0; 7]), 1.0));
        assert!(near(jain(&[1.0, 0.0, 0.0, 0.0]), 0.25));
        // k of n share evenly: k/n.
        assert!(near(jain(&[5.0, 5.0, 5.0, 0.0]), 0.75));
        assert!(near(jain(&[1.0, 2.0, 3.0]), 36.0 / 42.0));
        assert!(near(jain(&[0.0, 0.0]), 1.0));
    }

    #[test]
    fn tcp_share_of_all_bytes() {
        let of = |tcp, media| TcpShare::of(tcp, media).map(|share| share.wire);
        assert_eq!(of(0, 0), None);
        assert_eq!(of(200, 100), Some(2.0 / 3.0));
        assert_eq!(of(0, 1), Some(0.0));
    }

    #[test]
    fn a_share_and_the_media_say_what_tcp_had() {
        let half = TcpShare { wire: 0.5 };
        assert_eq!(half.beside(300.0), Some(300.0));
        assert_eq!(TcpShare { wire: 1.0 }.beside(0.0), None);
    }

    #[test]
    fn a_share_of_the_payload_is_read_with_its_headers_and_once() {
        // Three flows that share evenly on the wire: two TCP flows with 453 of 519 bytes each.
        let old = (2.0 * 453.0) / (2.0 * 453.0 + 519.0);
        let read: TcpShare = serde_json::from_str(&old.to_string()).expect("the old form");
        assert!((read.wire - 2.0 / 3.0).abs() < 1e-12, "{read:?}");
        let written = serde_json::to_string(&read).expect("JSON");
        let again: TcpShare = serde_json::from_str(&written).expect("the new form");
        assert_eq!(again, read, "{written}");
        let whole: TcpShare = serde_json::from_str("1.0").expect("all of it");
        assert!((whole.wire - 1.0).abs() < 1e-12, "{whole:?}");
    }
}
