//! LPD's option in the outer header of the kernel's own tunnels: stamped on the device below them, honoured at the last
//! hop, and the packet within it whole. Beside each what is left as it is. Needs modules that not every kernel has: run
//! in the VM (`just test-vm`).

use std::net::UdpSocket;

use bestby_bpf::abi::*;
use bestby_tests::{
    classify::relative,
    clock::MS,
    netns::{shell, try_shell},
    require,
    socket::set,
};

use crate::{
    stamp_lab::{DISCARD, Seen, TYPE4, TYPE6},
    tunnel_lab::{Kind, LONG, LONGER, SHORT, Tunnel, through},
};

const FORWARD: u8 = 0;
const TRUNCATE: u8 = 0x20;

fn modules(names: &str) -> Result<(), String> {
    require::root()?;
    try_shell(&format!("modprobe --all {names}")).map(drop)
}

/// Both families.
const BOTH: &[bool] = &[false, true];

/// The packet has an option of this treatment, and of this lifetime or a little less.
#[track_caller]
fn assert_says(seen: &Seen, treatment: u8, lifetime: u64) {
    let kind = if seen.six() { [TYPE6, 6] } else { [TYPE4, 8] };
    let option = seen.option().expect("no option");
    assert_eq!((&option[..2], option[3]), (&kind[..], treatment));
    // The others are half of it at most.
    let least = lifetime / 2 / MS + 1;
    assert!(
        (least..=lifetime / MS).contains(&seen.lifetime_ms().into()),
        "{option:?}"
    );
}

/// What the option takes, rounded up where the tunnel pads.
fn need(t: &Tunnel<'_>) -> usize {
    match t.kind {
        Kind::WireGuard => 32,
        _ if t.six => 16,
        _ => 8,
    }
}

/// What every kind has in common. Nobody trusts the sender at first, and everybody does afterwards.
fn outer_option_counts(t: &Tunnel<'_>) {
    let socket = t.sender();
    let (stale, truncated) = (t.stale(), t.hop().truncated);

    t.plain();
    assert_eq!(t.delivered(&socket, 300).option(), None);
    let untrusted = t.global(BB_G_OPTION_UNTRUSTED);
    t.stamps(SHORT, BB_TREAT_DISCARD);
    assert_says(&t.delivered(&socket, 301), DISCARD, SHORT);
    assert!(t.global(BB_G_OPTION_UNTRUSTED) > untrusted);

    t.trust();
    let untrusted = t.global(BB_G_OPTION_UNTRUSTED);
    t.stamps(LONG, BB_TREAT_DISCARD);
    assert_says(&t.delivered(&socket, 302), DISCARD, LONG);
    t.stamps(SHORT, BB_TREAT_FORWARD);
    assert_says(&t.delivered(&socket, 303), FORWARD, SHORT);
    assert_eq!(t.stale(), stale);
    t.stamps(SHORT, BB_TREAT_DISCARD);
    t.dropped(&socket, 304);
    // Only WireGuard's looks like a datagram, and what is left of it is none of WireGuard's.
    t.stamps(SHORT, BB_TREAT_TRUNCATE);
    if t.kind == Kind::WireGuard {
        let left = t.truncated(&socket, 305);
        assert_says(&left, TRUNCATE, SHORT);
        assert!(left.payload().is_empty());
    } else {
        t.dropped(&socket, 305);
        assert_eq!(t.hop().truncated, truncated);
    }

    // Neither of the two arrives before this one, which has no room for the option.
    t.stamps(LONG, BB_TREAT_DISCARD);
    let mtu = t.global(BB_G_STAMP_MTU);
    let full = t.kind.full(t.six);
    assert_eq!(t.delivered(&socket, full).option(), None);
    assert!(t.global(BB_G_STAMP_MTU) > mtu);
    assert_says(&t.delivered(&socket, full - need(t)), DISCARD, LONG);
    t.stream(100_000);
    assert_eq!(t.global(BB_G_OPTION_UNTRUSTED), untrusted);
    assert_eq!(t.global(BB_G_STAMP_FAILED), 0);
}

/// The option within the tunnel: nobody reads it.
fn inner_option_is_hidden(t: &Tunnel<'_>) {
    t.plain();
    let stale = t.stale();
    let socket = t.sender_with_option(DISCARD, (SHORT / MS) as u16);
    assert_eq!(t.delivered(&socket, 306).option(), None);
    assert_eq!(t.stale(), stale);
}

/// The option of a packet of which only the transport is protected: it is in the outer header.
fn option_is_in_clear(t: &Tunnel<'_>) {
    t.plain();
    let long = t.sender_with_option(DISCARD, (LONG / MS) as u16);
    let short = t.sender_with_option(DISCARD, (SHORT / MS) as u16);
    assert_says(&t.delivered(&long, 307), DISCARD, LONG);
    t.dropped(&short, 308);
    assert_says(&t.delivered(&long, 309), DISCARD, LONG);
}

/// A socket whose packets say by their mark how long they live.
fn marked(t: &Tunnel<'_>) -> UdpSocket {
    let socket = t.sender();
    set(&socket, libc::SOL_SOCKET, libc::SO_MARK, &relative(LONGER)).unwrap();
    socket
}

/// What the inner packet's socket says stands in the outer header.
fn socket_is_heard(t: &Tunnel<'_>) {
    t.stamps(LONG, BB_TREAT_DISCARD);
    assert_says(&t.delivered(&marked(t), 310), DISCARD, LONGER);
    assert_says(&t.delivered_until(LONGER, 311), DISCARD, LONGER);
    assert_says(&t.delivered(&t.sender(), 312), DISCARD, LONG);
}

fn device(t: &Tunnel<'_>) {
    let super_packets = t.global(BB_G_STAMP_GSO);
    outer_option_counts(t);
    inner_option_is_hidden(t);
    socket_is_heard(t);
    // Those of the stream are cut below.
    assert!(t.global(BB_G_STAMP_GSO) > super_packets);
}

#[test]
fn tunnel_gre_is_stamped_and_honoured_by_its_outer_header() {
    if require::can(modules("ip_gre ip6_gre")) {
        through(Kind::Gre, BOTH, device);
    }
}

#[test]
fn tunnel_ipip_is_stamped_and_honoured_by_its_outer_header() {
    if require::can(modules("ipip ip6_tunnel")) {
        through(Kind::Ipip, BOTH, device);
    }
}

#[test]
fn tunnel_with_a_destination_option_is_stamped_in_front_of_it() {
    if require::can(modules("ip6_tunnel")) {
        through(Kind::Limited, &[true], device);
    }
}

#[test]
fn tunnel_esp_transport_is_stamped_and_honoured_and_its_own_option_filled() {
    if !require::can(modules("xfrm_user esp4 esp6")) {
        return;
    }
    through(Kind::EspTransport, BOTH, |t| {
        outer_option_counts(t);
        option_is_in_clear(t);
        socket_is_heard(t);
        // The application left a place, so that full packets have one, too.
        let place = t.sender_with_option(FORWARD, 0);
        let seen = t.delivered(&place, t.kind.full(t.six) - need(t));
        assert_says(&seen, DISCARD, LONG);
    });
}

#[test]
fn tunnel_esp_tunnel_is_stamped_and_honoured_by_its_outer_header() {
    if !require::can(modules("xfrm_user esp4 esp6")) {
        return;
    }
    through(Kind::EspTunnel, BOTH, |t| {
        outer_option_counts(t);
        inner_option_is_hidden(t);
        socket_is_heard(t);
    });
}

#[test]
fn tunnel_ah_is_honoured_and_never_stamped() {
    if !require::can(modules("xfrm_user ah4 ah6")) {
        return;
    }
    through(Kind::Ah, BOTH, |t| {
        let (protected, stamped) = (t.global(BB_G_STAMP_AH), t.global(BB_G_STAMPED));
        t.trust();
        t.stamps(SHORT, BB_TREAT_DISCARD);
        assert_eq!(t.delivered(&t.sender(), 320).option(), None);
        let place = t.sender_with_option(FORWARD, 0);
        assert_eq!(t.delivered(&place, 321).lifetime_ms(), 0);
        assert_eq!(t.global(BB_G_STAMP_AH), protected + 2);
        assert_eq!(t.global(BB_G_STAMPED), stamped);
        option_is_in_clear(t);
    });
}

#[test]
fn tunnel_wireguard_is_stamped_and_honoured_and_has_its_own_mark() {
    if !require::can(modules("wireguard")) {
        return;
    }
    through(Kind::WireGuard, BOTH, |t| {
        outer_option_counts(t);
        inner_option_is_hidden(t);
        // The deadline comes through, the mark does not: the rule's lifetime counts.
        t.stamps(LONG, BB_TREAT_DISCARD);
        let marked = marked(t);
        assert_says(&t.delivered_until(LONGER, 313), DISCARD, LONGER);
        assert_says(&t.delivered(&marked, 314), DISCARD, LONG);
        // WireGuard's is in its place.
        shell(&format!("wg set tu fwmark {}", relative(LONGER)));
        assert_says(&t.delivered(&marked, 315), DISCARD, LONGER);
        // A new handshake bears the option. What waits for it loses its socket, and all that the socket says.
        let renewed = "ip link set tu down; ip link set tu up";
        shell(renewed);
        let stamped = t.global(BB_G_STAMPED);
        assert_says(&t.delivered(&marked, 316), DISCARD, LONG);
        assert!(t.global(BB_G_STAMPED) >= stamped + 2);
        shell(renewed);
        assert_says(&t.delivered_until(LONGER, 317), DISCARD, LONG);
    });
}
