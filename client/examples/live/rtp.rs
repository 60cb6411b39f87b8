//! RTP as RTSP carries it (`rtsp`): tracks of a session, and frames of packets.

use std::{io, sync::Arc};

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::live::{Frame, Kind};

/// In front of each packet: `$`, channel, length (RFC 2326, 10.12).
const FRAMING: usize = 4;
/// More packets without an end of the frame are no frame.
const MOST_PACKETS: usize = 8192;

/// A medium of the session. Track n has channel 2n for packets and 2n + 1 for reports.
#[derive(Debug)]
pub(crate) struct Track {
    /// Its name in URLs.
    pub(crate) control: String,
    h264: bool,
    /// Of the frame that is coming.
    packets: Vec<Arc<[u8]>>,
    kind: Option<Kind>,
}

/// Reads a packet with its framing.
pub(crate) async fn packet(reading: &mut (impl AsyncRead + Unpin)) -> io::Result<Arc<[u8]>> {
    let mut packet = vec![0; FRAMING];
    reading.read_exact(&mut packet).await?;
    let length = u16::from_be_bytes([packet[2], packet[3]]);
    packet.resize(FRAMING + usize::from(length), 0);
    reading.read_exact(&mut packet[FRAMING..]).await?;
    Ok(packet.into())
}

/// Tracks of a session description (RFC 4566).
pub(crate) fn tracks(description: &str) -> Vec<Track> {
    let mut tracks: Vec<Track> = Vec::new();
    for line in description.lines() {
        if line.starts_with("m=") {
            tracks.push(Track {
                control: String::new(),
                h264: false,
                packets: Vec::new(),
                kind: None,
            });
        }
        let Some(track) = tracks.last_mut() else {
            continue;
        };
        if let Some(control) = line.strip_prefix("a=control:") {
            track.control = control.to_owned();
        }
        track.h264 |= line.starts_with("a=rtpmap:") && line.contains(" H264/");
    }
    tracks
}

impl Track {
    /// Takes a packet with its framing; returns the frame that it ends. Of video the marker ends one (RFC 6184,
    /// 5.1), and of audio each packet is one.
    pub(crate) fn take(&mut self, packet: Arc<[u8]>) -> Option<Frame> {
        if !self.h264 {
            return Some(Frame::new(Kind::Audio, vec![packet]));
        }
        let header = packet.get(FRAMING..FRAMING + 12)?;
        let ends = header[1] & 0x80 != 0;
        if let Some(kind) = payload(&packet[FRAMING..]).and_then(kind) {
            self.kind = Some(match (self.kind, kind) {
                (Some(Kind::Key), _) | (_, Kind::Key) => Kind::Key,
                (Some(Kind::Reference), _) | (_, Kind::Reference) => Kind::Reference,
                _ => Kind::Disposable,
            });
        }
        self.packets.push(packet);
        if !ends && self.packets.len() < MOST_PACKETS {
            return None;
        }
        let kind = self.kind.take().unwrap_or(Kind::VideoHeader);
        Some(Frame::new(kind, std::mem::take(&mut self.packets)))
    }
}

/// What follows the header (RFC 3550, 5.1).
fn payload(packet: &[u8]) -> Option<&[u8]> {
    let sources = usize::from(packet.first()? & 0x0f);
    let rest = packet.get(12 + 4 * sources..)?;
    if packet[0] & 0x10 == 0 {
        return Some(rest);
    }
    let words = u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]);
    rest.get(4 + 4 * usize::from(words)..)
}

/// What a payload has of a frame; none for parameters and messages.
fn kind(payload: &[u8]) -> Option<Kind> {
    const AGGREGATE: u8 = 24;
    const FRAGMENT: u8 = 28;
    let unit = |header: u8, kind: u8| match kind & 0x1f {
        5 => Some(Kind::Key),
        1..=4 if header & 0x60 == 0 => Some(Kind::Disposable),
        1..=4 => Some(Kind::Reference),
        _ => None,
    };
    let &header = payload.first()?;
    match header & 0x1f {
        FRAGMENT => unit(header, *payload.get(1)?),
        AGGREGATE => {
            let mut rest = &payload[1..];
            let mut found = None;
            while let Some((length, units)) = rest.split_first_chunk() {
                let length = usize::from(u16::from_be_bytes(*length));
                let (first, _) = units.split_first()?;
                // The units of a frame are alike, but for parameters.
                found = found.or(unit(*first, *first));
                rest = units.get(length..)?;
            }
            found
        }
        _ => unit(header, header),
    }
}
