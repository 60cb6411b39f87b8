//! Synchronous netlink: one request, its answers, its error in the kernel's own words.
//!
//! Traffic-control messages are kept as bytes: what the agent saves and restores must be exactly what the
//! kernel said, for every kind of qdisc, known here or not.

use std::io;

use netlink_packet_core::{
    DefaultNla, Emitable, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST,
    NetlinkDeserializable, NetlinkHeader, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
    NlasIterator,
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
    /// What was listed changed meanwhile: something may be missing in the list.
    #[error("netlink: it changed again and again while it was listed")]
    Changed,
    /// An answer that is no netlink message.
    #[error("netlink: answer not understood: {0}")]
    Malformed(String),
}

impl NetlinkError {
    /// The error number, if the kernel gave one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Io(e) | Self::Refused { source: e, .. } => e.raw_os_error(),
            Self::Malformed(_) | Self::Changed => None,
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
        const TRIES: usize = 8;
        for _ in 1..TRIES {
            match self.exchange(NLM_F_REQUEST | NLM_F_DUMP, message.clone()) {
                Err(NetlinkError::Changed) => {}
                done => return done,
            }
        }
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

        let mut answers = Answers::default();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            if answers.take(&datagram, self.sequence)? {
                return Ok(answers.all);
            }
        }
    }
}

/// What came so far in answer to one request.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) all: Vec<Raw>,
    changed: bool,
}

impl Answers {
    /// Takes a datagram; returns whether it was the last.
    pub(crate) fn take(&mut self, datagram: &[u8], sequence: u32) -> Result<bool, NetlinkError> {
        let mut rest = datagram;
        while !rest.is_empty() {
            let reply = NetlinkMessage::<Raw>::deserialize(rest)
                .map_err(|e| NetlinkError::Malformed(e.to_string()))?;
            // Lengths are padded to 4 bytes, save behind the last message.
            let length = (reply.header.length as usize).next_multiple_of(4);
            rest = rest.get(length..).unwrap_or_default();
            if reply.header.sequence_number != sequence {
                continue; // left over from a request that was given up
            }
            self.changed |= reply.header.flags & NLM_F_DUMP_INTR != 0;
            match reply.payload {
                NetlinkPayload::InnerMessage(raw) => self.all.push(raw),
                // A list that ends in an error, or may lack something, is no list: whoever read it would take what
                // is missing for gone.
                NetlinkPayload::Done(done) if done.code != 0 => {
                    return Err(NetlinkError::Refused {
                        source: io::Error::from_raw_os_error(done.code.saturating_neg()),
                        said: String::new(),
                    });
                }
                NetlinkPayload::Done(_) if self.changed => return Err(NetlinkError::Changed),
                NetlinkPayload::Done(_) => return Ok(true),
                NetlinkPayload::Error(error) => match error.code {
                    None => return Ok(true),
                    Some(code) => {
                        return Err(NetlinkError::Refused {
                            source: io::Error::from_raw_os_error(code.get().saturating_neg()),
                            said: explanation(&error.header),
                        });
                    }
                },
                _ => {}
            }
        }
        Ok(false)
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
    fn interrupted_or_failed_dump_is_an_error() {
        let message = |kind: u16, flags: u16, body: &[u8]| {
            let length = u32::try_from(16 + body.len()).unwrap();
            let mut bytes = length.to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(flags.to_ne_bytes());
            bytes.extend(7_u32.to_ne_bytes()); // sequence
            bytes.extend([0; 4]); // port
            bytes.extend(body);
            bytes
        };
        let done = |flags, code: i32| message(3, flags, &code.to_ne_bytes());
        let link = |flags| message(libc::RTM_NEWLINK, flags, &[0; 16]);
        let read = |datagrams: &[Vec<u8>]| {
            let mut answers = Answers::default();
            let mut ends = Ok(false);
            for datagram in datagrams {
                ends = answers.take(datagram, 7);
            }
            ends.map(|end| (end, answers.all.len()))
        };
        assert_eq!(read(&[link(2), done(2, 0)]).unwrap(), (true, 1));
        let failed = read(&[link(2), done(2, -libc::ENOBUFS)]).unwrap_err();
        assert_eq!(failed.errno(), Some(libc::ENOBUFS));
        let changed = read(&[link(2 | NLM_F_DUMP_INTR), done(2, 0)]);
        assert!(matches!(changed, Err(NetlinkError::Changed)));
    }

    #[test]
    fn encoded_attributes_read_back_equal() {
        let all = vec![(1, c_string("htb")), (2, vec![1, 2, 3, 4, 5])];
        assert_eq!(attributes(&encode(&all)), all);
        assert_eq!(text(find(&all, 1).unwrap()), "htb");
        assert_eq!(number(&[1, 0]), None);
    }
}
