//! A link whose near end stamps, and what is captured at its far end.

use std::{
    net::{IpAddr, SocketAddr, TcpStream, UdpSocket},
    os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd},
    time::Duration,
};

use bestby_bpf::abi::*;
use bestby_tests::{
    bpf::{Lab, Rule, iface},
    clock::SECOND,
    netns::{Netns, ifindex, linked_lab, shell},
    require,
    socket::set,
    stream,
};

pub(crate) const PORT: u16 = 5004;
pub(crate) const UDP_SEGMENT: i32 = 103;
pub(crate) const ADDRESSES: [(&str, usize); 2] = [("10.9.0.2", 20), ("fd09::2", 40)];
pub(crate) const TYPE4: u8 = 0x9e;
pub(crate) const TYPE6: u8 = 0x3e;
pub(crate) const TYPE6_DEADLINE: u8 = 0x1e;
pub(crate) const DISCARD: u8 = 0x10;

/// What arrives at a device: whole frames, checksums of the transport as they are in memory.
pub(crate) struct Tap(OwnedFd);

/// A packet that was captured.
#[derive(Debug)]
pub(crate) struct Seen {
    /// From the IP header on.
    pub(crate) ip: Vec<u8>,
}

impl Tap {
    pub(crate) fn new(device: &str) -> Self {
        // SAFETY: plain system calls; the address is a zeroed sockaddr_ll, filled here, and outlives the call.
        unsafe {
            let all = libc::ETH_P_ALL as u16;
            let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
            let fd = libc::socket(libc::AF_PACKET, kind, i32::from(all.to_be()));
            assert!(fd >= 0, "{}", std::io::Error::last_os_error());
            let fd = OwnedFd::from_raw_fd(fd);
            let mut at: libc::sockaddr_ll = std::mem::zeroed();
            at.sll_family = libc::AF_PACKET as u16;
            at.sll_protocol = all.to_be();
            at.sll_ifindex = ifindex(device) as i32;
            let size = size_of::<libc::sockaddr_ll>() as u32;
            assert_eq!(libc::bind(fd.as_raw_fd(), (&raw const at).cast(), size), 0);
            set(&fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &(32 << 20)).unwrap();
            Self(fd)
        }
    }

    /// All packets to the port that came so far.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        let mut buffer = vec![0u8; 1 << 17];
        let mut all = Vec::new();
        loop {
            // SAFETY: the buffer is valid for its length.
            let length = unsafe {
                libc::recv(
                    self.0.as_raw_fd(),
                    buffer.as_mut_ptr().cast(),
                    buffer.len(),
                    libc::MSG_DONTWAIT,
                )
            };
            let Ok(length) = usize::try_from(length) else {
                return all;
            };
            let seen = Seen {
                ip: buffer[..length].to_vec(),
            };
            if seen.is_ours() {
                all.push(seen);
            }
        }
    }
}

pub(crate) fn sum16(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)])))
        .sum();
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

impl Seen {
    pub(crate) fn six(&self) -> bool {
        self.ip[0] >> 4 == 6
    }

    /// Protocol and place of the transport header.
    pub(crate) fn transport(&self) -> (u8, usize) {
        if !self.six() {
            return (self.ip[9], usize::from(self.ip[0] & 15) * 4);
        }
        match self.ip[6] {
            0 => (self.ip[40], 48 + usize::from(self.ip[41]) * 8),
            44 => (44, 48),
            next => (next, 40),
        }
    }

    pub(crate) fn is_ours(&self) -> bool {
        let (proto, at) = self.transport();
        matches!(proto, 6 | 17)
            && self.ip.len() >= at + 8
            && self.ip[at + 2..at + 4] == PORT.to_be_bytes()
    }

    pub(crate) fn payload(&self) -> &[u8] {
        match self.transport() {
            (6, at) => &self.ip[at + usize::from(self.ip[at + 12] >> 4) * 4..],
            (_, at) => &self.ip[at + 8..],
        }
    }

    /// The option, with all that a receiver relies on around it looked at.
    #[track_caller]
    pub(crate) fn option(&self) -> Option<[u8; 8]> {
        let length = usize::from(u16::from_be_bytes(if self.six() {
            [self.ip[4], self.ip[5]]
        } else {
            [self.ip[2], self.ip[3]]
        }));
        let option = if self.six() {
            assert_eq!(40 + length, self.ip.len());
            if self.ip[6] != 0 {
                return None;
            }
            assert_eq!(self.ip[41..44], [1, 1, 0]);
            assert_eq!(self.ip[52..56], [1, 2, 0, 0]);
            &self.ip[44..52]
        } else {
            assert_eq!(length, self.ip.len());
            let header = usize::from(self.ip[0] & 15) * 4;
            assert_eq!(sum16(&self.ip[..header]), 0xffff, "IPv4 checksum");
            if header == 20 {
                return None;
            }
            assert_eq!(header, 28);
            &self.ip[20..28]
        };
        Some(option.try_into().unwrap())
    }

    #[track_caller]
    pub(crate) fn lifetime_ms(&self) -> u32 {
        let option = self.option().expect("no option");
        u32::from_be_bytes(option[4..].try_into().unwrap())
    }

    /// Whether the transport's checksum is that of what was captured.
    pub(crate) fn checksum_is_right(&self) -> bool {
        let (proto, at) = self.transport();
        let addresses = if self.six() { 8..40 } else { 12..20 };
        let body = &self.ip[at..];
        let mut sum = self.ip[addresses].to_vec();
        sum.extend((body.len() as u32).to_be_bytes());
        sum.extend([0, 0, 0, proto]);
        sum.extend(body);
        sum16(&sum) == 0xffff
    }
}

/// Both ends of a link, the near one stamping, and what is captured at the far one.
pub(crate) struct Bench<'a> {
    pub(crate) lab: Lab,
    pub(crate) peer: &'a Netns,
    pub(crate) tap: Tap,
}

impl Bench<'_> {
    pub(crate) fn on(rules: &[Rule], offloads: Offload, test: impl FnOnce(&Bench<'_>) + Send) {
        linked_lab(require::root(), |_, peer| {
            shell("ip addr add fd09::1/64 dev v0 nodad; tc qdisc add dev v0 clsact");
            peer.run("ip addr add fd09::2/64 dev v1 nodad");
            let mac = |link: String| link.split("ether ").nth(1).unwrap()[..17].to_owned();
            let near = mac(shell("ip -o link show v0"));
            let far = mac(peer.run("ip -o link show v1"));
            shell(&format!(
                "ip neigh replace fd09::2 lladdr {far} dev v0 nud permanent"
            ));
            peer.run(&format!(
                "ip neigh replace fd09::1 lladdr {near} dev v1 nud permanent"
            ));
            offload(offloads);
            let mut lab = Lab::bare();
            lab.iface(0, &iface(ifindex("v0"), BB_MODE_TC));
            lab.rules(rules);
            lab.attach("v0");
            let tap = peer.enter(|| Tap::new("v1"));
            test(&Bench { lab, peer, tap });
        });
    }

    pub(crate) fn receiver(&self, to: &str) -> UdpSocket {
        let address = SocketAddr::new(to.parse().unwrap(), PORT);
        let socket = self.peer.enter(|| UdpSocket::bind(address).unwrap());
        set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &(8 << 20)).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        socket
    }

    /// Takes so many datagrams and what was captured of them.
    #[track_caller]
    pub(crate) fn delivered(&self, receiver: &UdpSocket, expected: &[&[u8]]) -> Vec<Seen> {
        let mut got = vec![0; 70_000];
        for payload in expected {
            let length = receiver.recv(&mut got).expect("not delivered");
            assert!(&got[..length] == *payload, "payload");
        }
        receiver.set_nonblocking(true).unwrap();
        assert!(receiver.recv(&mut got).is_err(), "more than was sent");
        receiver.set_nonblocking(false).unwrap();
        self.tap.seen()
    }

    #[track_caller]
    pub(crate) fn counted(&self, which: u32, count: u64) {
        let counters: Vec<(u32, u64)> = (BB_G_STAMPED..=BB_G_STAMP_CLOCK)
            .chain([BB_G_STAMP_FAILED, BB_G_STAMP_PROBE])
            .map(|which| (which, self.lab.global(which)))
            .filter(|(_, n)| *n != 0)
            .collect();
        assert_eq!(counters, [(which, count)]);
    }
}

/// The rule, and the option in what it matches.
pub(crate) fn stamps(rule: Rule) -> Rule {
    flags(rule, BB_RULE_STAMP)
}

pub(crate) fn flags(mut rule: Rule, flags: u32) -> Rule {
    rule.says.flags |= u8::try_from(flags).unwrap();
    rule
}

pub(crate) fn rule() -> Rule {
    stamps(Rule::new().dport(PORT).lifetime(10 * SECOND))
}

pub(crate) fn sender(to: &str) -> UdpSocket {
    let any = if to.contains(':') {
        "[::]:0"
    } else {
        "0.0.0.0:0"
    };
    let socket = UdpSocket::bind(any).unwrap();
    socket
        .connect((to.parse::<IpAddr>().unwrap(), PORT))
        .unwrap();
    socket
}

pub(crate) fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 7 + length) as u8).collect()
}

/// What a device does of the kernel's work.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Offload {
    All,
    /// Checksums only: the kernel cuts super-packets.
    Checksum,
    None,
}

pub(crate) const OFFLOADS: [Offload; 3] = [Offload::All, Offload::Checksum, Offload::None];

/// Takes offloads away from `v0`.
pub(crate) fn offload(which: Offload) {
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    const ETHTOOL_SFEATURES: u32 = 0x3b;
    const CHECKSUM: u32 = 1 << 3; // NETIF_F_HW_CSUM
    const TSO: u32 = 1 << 16 | 1 << 18 | 1 << 20;
    const UDP: u32 = 1 << 1; // NETIF_F_GSO_UDP_L4, in the second word
    let first = match which {
        Offload::All => return,
        Offload::Checksum => TSO,
        Offload::None => TSO | CHECKSUM,
    };
    // Command, number of pairs, then which features are meant and which of them wanted.
    let mut command = [ETHTOOL_SFEATURES, 2, first, 0, UDP, 0];
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    // SAFETY: all zeroes is a valid ifreq; it and what it points to outlive the call.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (to, from) in request.ifr_name.iter_mut().zip(b"v0") {
            *to = *from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = command.as_mut_ptr().cast();
        let status = libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request);
        assert!(status >= 0, "{}", std::io::Error::last_os_error());
    }
}

/// Sends so many bytes over a connection to the port and returns what was captured of its data.
pub(crate) fn transfer(
    bench: &Bench<'_>,
    to: &str,
    length: usize,
    prepare: impl FnOnce(&TcpStream),
) -> Vec<Seen> {
    let address = SocketAddr::new(to.parse().unwrap(), PORT);
    stream::carry(bench.peer, address, &bytes(length), prepare);
    bench.tap.seen()
}
