//! Synchronous netlink: one request, its answers, its error in the kernel's own words.
//!
//! Traffic-control messages are kept as bytes: what the agent saves and restores must be exactly what the
//! kernel said, for every kind of qdisc, known here or not.

use std::io;

use netlink_packet_core::{
    DefaultNla, Emitable, NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable,
    NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable, NlasIterator,
};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

/// A message of any type: its number and its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Raw {
    /// Type, e.g. `RTM_NEWQDISC`.
    pub kind: u16,
    /// Family header and attributes.
    pub body: Vec<u8>,
}

impl NetlinkSerializable for Raw {
    fn message_type(&self) -> u16 {
        self.kind
    }
    fn buffer_len(&self) -> usize {
        self.body.len()
    }
    fn serialize(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.body);
    }
}

impl NetlinkDeserializable for Raw {
    type Error = std::convert::Infallible;
    fn deserialize(header: &NetlinkHeader, payload: &[u8]) -> Result<Self, Self::Error> {
        Ok(Self {
            kind: header.message_type,
            body: payload.to_vec(),
        })
    }
}

/// Why the kernel refused a request.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The socket failed.
    #[error("netlink: {0}")]
    Io(#[from] io::Error),
    /// The kernel's answer.
    #[error("{source}{}", if said.is_empty() { String::new() } else { format!(": {said}") })]
    Refused {
        /// The error number.
        source: io::Error,
        /// The kernel's explanation; may be empty.
        said: String,
    },
    /// An answer that is no netlink message.
    #[error("netlink: answer not understood: {0}")]
    Malformed(String),
}

impl NetlinkError {
    /// The error number, if the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io(e) | Self::Refused { source: e, .. } => e.raw_os_error(),
            Self::Malformed(_) => None,
        }
    }
}

/// A connection to the kernel, in the network namespace of the thread that opened it.
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens `NETLINK_ROUTE`.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn route() -> io::Result<Self> {
        Self::open(NETLINK_ROUTE)
    }

    /// Opens a protocol of netlink.
    ///
    /// # Errors
    /// The socket cannot be made.
    pub fn open(protocol: isize) -> io::Result<Self> {
        let mut socket = Socket::new(protocol)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        // Both only improve messages; kernels of today have them.
        let _ = socket.set_ext_ack(true);
        let _ = socket.set_cap_ack(true);
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// A change: succeeds when the kernel acknowledges it.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn change(&mut self, flags: u16, message: Raw) -> Result<(), NetlinkError> {
        self.exchange(flags | NLM_F_REQUEST | NLM_F_ACK, message)
            .map(drop)
    }

    /// All objects that match.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn dump(&mut self, message: Raw) -> Result<Vec<Raw>, NetlinkError> {
        self.exchange(NLM_F_REQUEST | NLM_F_DUMP, message)
    }

    /// One object.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn get(&mut self, message: Raw) -> Result<Vec<Raw>, NetlinkError> {
        self.exchange(NLM_F_REQUEST | NLM_F_ACK, message)
    }

    fn exchange(&mut self, flags: u16, message: Raw) -> Result<Vec<Raw>, NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = flags;
        header.sequence_number = self.sequence;
        let mut packet = NetlinkMessage::new(header, NetlinkPayload::InnerMessage(message));
        packet.finalize();
        let mut bytes = vec![0; packet.buffer_len()];
        packet.serialize(&mut bytes);
        self.socket.send(&bytes, 0)?;

        let mut answers = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = &datagram[..];
            while !rest.is_empty() {
                let reply = NetlinkMessage::<Raw>::deserialize(rest)
                    .map_err(|e| NetlinkError::Malformed(e.to_string()))?;
                // Lengths are padded to 4 bytes, save behind the last message.
                let length = (reply.header.length as usize).next_multiple_of(4);
                rest = rest.get(length..).unwrap_or_default();
                if reply.header.sequence_number != self.sequence {
                    continue; // left over from a request that was given up
                }
                match reply.payload {
                    NetlinkPayload::InnerMessage(raw) => answers.push(raw),
                    NetlinkPayload::Done(_) => return Ok(answers),
                    NetlinkPayload::Error(error) => match error.code {
                        None => return Ok(answers),
                        Some(code) => {
                            return Err(NetlinkError::Refused {
                                source: io::Error::from_raw_os_error(-code.get()),
                                said: explanation(&error.header),
                            });
                        }
                    },
                    _ => {}
                }
            }
        }
    }
}

/// The text of an extended acknowledgement (behind the 16 bytes of the request's header).
fn explanation(header: &[u8]) -> String {
    const NLMSGERR_ATTR_MSG: u16 = 1;
    header
        .get(16..)
        .map(attributes)
        .and_then(|all| all.into_iter().find(|(kind, _)| *kind == NLMSGERR_ATTR_MSG))
        .map(|(_, value)| text(&value))
        .unwrap_or_default()
}

/// A NUL-terminated string.
pub fn text(value: &[u8]) -> String {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

/// The attributes of a message; a malformed tail is left out.
pub fn attributes(bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    NlasIterator::new(bytes)
        .map_while(Result::ok)
        .map(|nla| (nla.kind(), nla.value().to_vec()))
        .collect()
}

/// The value of the first attribute of this kind.
pub fn find(attributes: &[(u16, Vec<u8>)], kind: u16) -> Option<&[u8]> {
    attributes
        .iter()
        .find(|(k, _)| *k == kind)
        .map(|(_, v)| &v[..])
}

/// A native-endian u32 at the front of a value.
pub fn number(value: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(*value.first_chunk::<4>()?))
}

/// Attributes as bytes.
pub fn encode(attributes: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let nlas: Vec<DefaultNla> = attributes
        .iter()
        .map(|(kind, value)| DefaultNla::new(*kind, value.clone()))
        .collect();
    let mut bytes = vec![0; nlas.as_slice().buffer_len()];
    nlas.as_slice().emit(&mut bytes);
    bytes
}

/// A string attribute's value.
pub fn c_string(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_round_trip() {
        let all = vec![(1, c_string("htb")), (2, vec![1, 2, 3, 4, 5])];
        assert_eq!(attributes(&encode(&all)), all);
        assert_eq!(text(find(&all, 1).unwrap()), "htb");
        assert_eq!(number(&[1, 0]), None);
    }
}
