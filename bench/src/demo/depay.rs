//! From RTP payloads (RFC 6184, packetization-mode 1) back to an H.264 byte
//! stream (Annex B) that any decoder reads.

use thiserror::Error;

const START_CODE: [u8; 4] = [0, 0, 0, 1];

/// Why the payloads of one frame do not form whole NAL units.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Error {
    /// A payload ends before the structure it announces.
    #[error("an H.264 payload of {0} bytes ends early")]
    Short(usize),
    /// A type that packetization-mode 1 does not have.
    #[error("H.264 payload type {0} is not one of packetization-mode 1")]
    Type(u8),
    /// A fragment without the ones before it, or a unit that never ends.
    #[error("a fragmented H.264 unit is incomplete")]
    Fragment,
}

/// Appends one frame to `out`. The payloads must be all of one RTP timestamp,
/// in the order of their sequence numbers. On error `out` is as it was.
pub fn append_frame<'a>(
    payloads: impl IntoIterator<Item = &'a [u8]>,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    let before = out.len();
    let result = append(payloads, out);
    if result.is_err() {
        out.truncate(before);
    }
    result
}

fn append<'a>(
    payloads: impl IntoIterator<Item = &'a [u8]>,
    out: &mut Vec<u8>,
) -> Result<(), Error> {
    // Type of the unit whose fragments are being collected.
    let mut open = None;
    for payload in payloads {
        let short = Error::Short(payload.len());
        let Some((&indicator, body)) = payload.split_first() else {
            return Err(short);
        };
        let kind = indicator & 0x1f;
        if kind != 28 && open.is_some() {
            return Err(Error::Fragment);
        }
        match kind {
            1..=23 => unit(payload, out),
            24 => {
                let mut rest = body;
                while !rest.is_empty() {
                    let (length, tail) = rest.split_at_checked(2).ok_or(short_of(payload))?;
                    let length = usize::from(u16::from_be_bytes([length[0], length[1]]));
                    let (nal, tail) = tail.split_at_checked(length).ok_or(short_of(payload))?;
                    if nal.is_empty() {
                        return Err(short);
                    }
                    unit(nal, out);
                    rest = tail;
                }
            }
            28 => {
                let Some((&header, fragment)) = body.split_first() else {
                    return Err(short);
                };
                let (start, end, kind) = (header & 0x80 != 0, header & 0x40 != 0, header & 0x1f);
                match (start, open) {
                    (true, None) => {
                        out.extend_from_slice(&START_CODE);
                        out.push(indicator & 0xe0 | kind);
                    }
                    (false, Some(begun)) if begun == kind => {}
                    _ => return Err(Error::Fragment),
                }
                out.extend_from_slice(fragment);
                open = (!end).then_some(kind);
            }
            other => return Err(Error::Type(other)),
        }
    }
    if open.is_some() {
        Err(Error::Fragment)
    } else {
        Ok(())
    }
}

fn unit(nal: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&START_CODE);
    out.extend_from_slice(nal);
}

fn short_of(payload: &[u8]) -> Error {
    Error::Short(payload.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(payloads: &[&[u8]]) -> Result<Vec<u8>, Error> {
        let mut out = vec![7];
        append_frame(payloads.iter().copied(), &mut out)?;
        Ok(out.split_off(1))
    }

    #[test]
    fn a_single_unit() {
        assert_eq!(frame(&[&[0x41, 5, 6]]).unwrap(), [0, 0, 0, 1, 0x41, 5, 6]);
    }

    #[test]
    fn aggregated_units() {
        let stap = [0x78, 0, 2, 0x67, 1, 0, 1, 0x68];
        assert_eq!(
            frame(&[&stap]).unwrap(),
            [0, 0, 0, 1, 0x67, 1, 0, 0, 0, 1, 0x68]
        );
        assert_eq!(frame(&[&stap[..7]]), Err(Error::Short(7)));
        assert_eq!(frame(&[&[0x78, 0, 0]]), Err(Error::Short(3)));
    }

    #[test]
    fn fragments_become_one_unit() {
        let (a, b, c): (&[u8], &[u8], &[u8]) =
            (&[0x7c, 0x85, 1, 2], &[0x7c, 0x05, 3], &[0x7c, 0x45, 4]);
        assert_eq!(frame(&[a, b, c]).unwrap(), [0, 0, 0, 1, 0x65, 1, 2, 3, 4]);
        assert_eq!(frame(&[b, c]), Err(Error::Fragment), "the first is missing");
        assert_eq!(frame(&[a, b]), Err(Error::Fragment), "the last is missing");
        assert_eq!(
            frame(&[a, &[0x41, 1]]),
            Err(Error::Fragment),
            "another unit in between"
        );
        assert_eq!(
            frame(&[a, &[0x7c, 0x41, 1]]),
            Err(Error::Fragment),
            "of another unit"
        );
    }

    #[test]
    fn an_error_leaves_no_half_frame() {
        let mut out = vec![1, 2];
        assert!(append_frame([&[0x41u8, 1][..], &[0x1e]], &mut out).is_err());
        assert_eq!(out, [1, 2]);
        assert_eq!(frame(&[&[0x1e]]), Err(Error::Type(30)));
        assert_eq!(frame(&[&[]]), Err(Error::Short(0)));
    }
}
