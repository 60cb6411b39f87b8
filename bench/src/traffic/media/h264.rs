//! H.264 in RTP payloads (RFC 6184, packetization-mode 1): what the first bytes say about a
//! frame's worth, and the way back to a byte stream (Annex B) that any decoder reads.

const START_CODE: [u8; 4] = [0, 0, 0, 1];

/// What other frames lose with this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Layer {
    /// A picture that can be decoded alone, or parameter sets: all frames until the next
    /// one need it.
    Key,
    /// Other frames refer to it.
    Reference,
    /// No frame refers to it (`nal_ref_idc` 0).
    Disposable,
}

impl Layer {
    /// Of a payload; of a fragmented picture every fragment says the same. `None`: not
    /// H.264 as RFC 6184 packs it.
    pub(super) fn of(payload: &[u8]) -> Option<Self> {
        let indicator = *payload.first()?;
        let unit = match indicator & 0x1f {
            // FU-A: the type of the fragmented unit is in the next byte.
            28 => *payload.get(1)? & 0x1f,
            // STAP-A: that of the first aggregated unit, behind its length.
            24 => *payload.get(3)? & 0x1f,
            unit @ 1..=23 => unit,
            _ => return None,
        };
        Some(match unit {
            // IDR picture; SEI, SPS, PPS and delimiters precede one here.
            5..=9 => Self::Key,
            _ if indicator & 0x60 != 0 => Self::Reference,
            _ => Self::Disposable,
        })
    }
}

/// The byte stream of one frame. The payloads must be all of one RTP timestamp, in the
/// order of their sequence numbers; `None` if they do not form whole NAL units.
pub(super) fn byte_stream<'a>(payloads: impl IntoIterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    // Type of the unit whose fragments are being collected.
    let mut open = None;
    for payload in payloads {
        let (&indicator, body) = payload.split_first()?;
        let kind = indicator & 0x1f;
        match kind {
            1..=23 if open.is_none() => {
                out.extend(START_CODE);
                out.extend(payload);
            }
            24 if open.is_none() => {
                let mut rest = body;
                while let Some((&length, tail)) = rest.split_first_chunk() {
                    let length = u16::from_be_bytes(length).into();
                    let (unit, tail) = tail.split_at_checked(length)?;
                    out.extend(START_CODE);
                    out.extend(unit);
                    rest = tail;
                }
            }
            28 => {
                let (&header, fragment) = body.split_first()?;
                let kind = header & 0x1f;
                match (header & 0x80 != 0, open) {
                    (true, None) => {
                        out.extend(START_CODE);
                        out.push(indicator & 0xe0 | kind);
                    }
                    (false, Some(begun)) if begun == kind => {}
                    _ => return None,
                }
                out.extend(fragment);
                open = (header & 0x40 == 0).then_some(kind);
            }
            _ => return None,
        }
    }
    open.is_none().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_is_read_from_every_kind_of_payload() {
        for (payload, layer) in [
            (&[0x65, 0x88][..], Some(Layer::Key)),
            (&[0x67], Some(Layer::Key)),
            (&[0x41, 0x9a], Some(Layer::Reference)),
            (&[0x01, 0x9e], Some(Layer::Disposable)),
            // FU-A.
            (&[0x7c, 0x85], Some(Layer::Key)),
            (&[0x5c, 0x01], Some(Layer::Reference)),
            (&[0x1c, 0x41], Some(Layer::Disposable)),
            (&[0x7c], None),
            // STAP-A, FU-B.
            (&[0x78, 0, 4, 0x67], Some(Layer::Key)),
            (&[0x5d, 0], None),
            (&[], None),
        ] {
            assert_eq!(Layer::of(payload), layer, "{payload:x?}");
        }
    }

    #[test]
    fn byte_stream_has_whole_units_or_there_is_none() {
        let stap: &[u8] = &[0x78, 0, 2, 0x67, 1, 0, 1, 0x68];
        let (a, b, c): (&[u8], &[u8], &[u8]) =
            (&[0x7c, 0x85, 1, 2], &[0x7c, 0x05, 3], &[0x7c, 0x45, 4]);
        for (what, payloads, expected) in [
            (
                "one unit",
                &[&[0x41, 5][..]][..],
                &[0, 0, 0, 1, 0x41, 5][..],
            ),
            ("two", &[stap], &[0, 0, 0, 1, 0x67, 1, 0, 0, 0, 1, 0x68]),
            ("a unit ends early", &[&stap[..7]], &[]),
            ("fragments", &[a, b, c], &[0, 0, 0, 1, 0x65, 1, 2, 3, 4]),
            ("the first is missing", &[b, c], &[]),
            ("the last is missing", &[a, b], &[]),
            ("another unit in between", &[a, &[0x41, 1]], &[]),
            ("of another unit", &[a, &[0x7c, 0x41, 1]], &[]),
            ("an unknown type", &[&[0x1e]], &[]),
            ("an empty payload", &[&[]], &[]),
        ] {
            let stream = byte_stream(payloads.iter().copied());
            let expected = (!expected.is_empty()).then(|| expected.to_vec());
            assert_eq!(stream, expected, "{what}");
        }
    }
}
