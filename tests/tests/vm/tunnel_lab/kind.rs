//! The kernel's tunnels, and how each is made.

use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gre,
    /// Over IPv6 ip6tnl. `Limited`: with the destination option that tells how deep tunnels may be, its default.
    Ipip,
    Limited,
    EspTransport,
    EspTunnel,
    Ah,
    WireGuard,
}

const WIREGUARD: u16 = 7000;

impl Kind {
    /// What follows IP's header, or the option's.
    pub(crate) fn next(self, six: bool) -> u8 {
        match self {
            Self::Limited if six => 60,
            Self::Ipip | Self::Limited => 4,
            Self::WireGuard => 17,
            Self::Gre => 47,
            Self::EspTransport | Self::EspTunnel => 50,
            Self::Ah => 51,
        }
    }

    /// Bytes of a datagram that leaves no room for the option in an outer packet of 1,500 bytes.
    pub(crate) fn full(self, six: bool) -> usize {
        match (self, six) {
            (Self::Gre, false) => 1500 - 20 - 4 - 28,
            (Self::Gre, true) => 1500 - 40 - 4 - 28,
            (Self::Ipip | Self::Limited, false) => 1500 - 20 - 28,
            (Self::Ipip, true) => 1500 - 40 - 28,
            (Self::Limited, true) => 1500 - 40 - 8 - 28,
            // ESP's header, IV and ICV are 32 bytes; what they protect has 2 more and is a multiple of 4.
            (Self::EspTransport, false) => 1496 - 20 - 32 - 2 - 8,
            (Self::EspTransport, true) => 1496 - 40 - 32 - 2 - 8,
            (Self::EspTunnel, false) => 1496 - 20 - 32 - 2 - 28,
            (Self::EspTunnel, true) => 1496 - 40 - 32 - 2 - 48,
            (Self::Ah, false) => 1500 - 20 - 28 - 8,
            (Self::Ah, true) => 1500 - 40 - 32 - 8,
            (Self::WireGuard, false) => 1500 - 20 - 8 - 32 - 28,
            (Self::WireGuard, true) => 1500 - 40 - 8 - 32 - 28,
        }
    }

    /// Addresses of sender and receiver within the tunnel.
    pub(crate) fn inner(self, six: bool) -> [&'static str; 2] {
        match self {
            Self::EspTransport | Self::Ah => super::ends(six),
            Self::EspTunnel if six => ["fd07::1", "fd07::2"],
            _ => ["10.7.0.1", "10.7.0.2"],
        }
    }

    /// What makes one of its ends; the sender's comes first.
    pub(crate) fn script(self, ends: [&str; 2], near: bool, dir: &Path) -> String {
        let six = ends[0].contains(':');
        let (me, other) = if near { (0, 1) } else { (1, 0) };
        let [my_outer, its_outer] = [ends[me], ends[other]];
        let inner = self.inner(six);
        let device = |kind: &str| {
            format!(
                "ip link add tu type {kind} local {my_outer} remote {its_outer}
                 ip addr add {}/24 dev tu; ip link set tu up",
                inner[me]
            )
        };
        match (self, six) {
            (Self::Gre, false) => device("gre"),
            (Self::Gre, true) => device("ip6gre encaplimit none"),
            (Self::Ipip | Self::Limited, false) => device("ipip"),
            (Self::Ipip, true) => device("ip6tnl mode ipip6 encaplimit none"),
            (Self::Limited, true) => device("ip6tnl mode ipip6"),
            (Self::EspTransport, _) => ipsec("transport", ESP, ends, inner, near),
            (Self::Ah, _) => ipsec("transport", AH, ends, inner, near),
            (Self::EspTunnel, _) => {
                let via = match (six, near) {
                    (false, true) => "10.1.0.2",
                    (false, false) => "10.2.0.1",
                    (true, true) => "fd01::2",
                    (true, false) => "fd02::1",
                };
                let nodad = if six { " nodad" } else { "" };
                format!(
                    "ip addr add {} dev lo{nodad}; ip route add {} via {via} src {0}\n{}",
                    inner[me],
                    inner[other],
                    ipsec("tunnel", ESP, ends, inner, near)
                )
            }
            (Self::WireGuard, _) => {
                let dir = dir.display();
                let endpoint = if six {
                    format!("[{its_outer}]:{WIREGUARD}")
                } else {
                    format!("{its_outer}:{WIREGUARD}")
                };
                // Whoever comes first makes the keys. Packets as large as the path takes.
                format!(
                    "cd {dir}
                     [ -e 1 ] || {{ umask 077; wg genkey >0; wg genkey >1; }}
                     ip link add tu mtu {mtu} type wireguard
                     wg set tu listen-port {WIREGUARD} private-key {me} peer $(wg pubkey <{other}) \\
                         allowed-ips 10.7.0.0/24 endpoint {endpoint}
                     ip addr add {}/24 dev tu; ip link set tu up",
                    inner[me],
                    mtu = self.full(six) + 28,
                )
            }
        }
    }

    /// What takes one of its ends away.
    pub(crate) fn removed(self) -> &'static str {
        match self {
            Self::EspTransport | Self::Ah => "ip xfrm policy flush; ip xfrm state flush",
            Self::EspTunnel => {
                "ip xfrm policy flush; ip xfrm state flush; ip route flush root 10.7.0.0/24
                 ip -6 route flush root fd07::/64; ip addr flush dev lo to 10.7.0.0/24
                 ip addr flush dev lo to fd07::/64"
            }
            _ => "ip link del tu",
        }
    }
}

/// Protocol, form, algorithm, bytes of its key, bits of its check value.
type How = (&'static str, &'static str, &'static str, usize, usize);

const ESP: How = ("esp", "aead", "rfc4106(gcm(aes))", 20, 128);
const AH: How = ("ah", "auth-trunc", "hmac(sha256)", 32, 128);

/// States and policies of one end.
fn ipsec(mode: &str, how: How, ends: [&str; 2], inner: [&str; 2], near: bool) -> String {
    let (proto, form, name, key, bits) = how;
    let key = "5b".repeat(key);
    let one = |spi: usize, src: usize, dst: usize| {
        let out = if (src == 0) == near { "out" } else { "in" };
        format!(
            "ip xfrm state add src {0} dst {1} proto {proto} spi {spi} reqid 1 mode {mode} \\
                 {form} '{name}' 0x{key} {bits}
             ip xfrm policy add src {2} dst {3} dir {out} \\
                 tmpl src {0} dst {1} proto {proto} reqid 1 mode {mode}\n",
            ends[src], ends[dst], inner[src], inner[dst]
        )
    };
    one(1, 0, 1) + &one(2, 1, 0)
}
