//! What a session is called: its name, kind, user and address, as the classifier keyed it (`bb_session.bpf.h`).

use std::net::IpAddr;

use bestby_bpf::abi;

use crate::kernel::address::address;
use crate::kernel::maps::Map;

/// Name of a session: `DEV/ADDRESS`, `DEV/ADDRESS/BITS`, `DEV/flow-HASH`, `DEV/interface`, `DEV/control`,
/// `DEV/control-ADDRESS`, `DEV/network`, `DEV/plain-ADDRESS#PART`, with `/uid-N` where it is one user's; `shared` is the
/// one for whatever has none of its own.
pub fn session_name(
    index: u32,
    session: &abi::bb_session,
    device: impl Fn(u32) -> Option<String>,
) -> String {
    let key = &session.key;
    if session.way.tag == 0 || key.ifindex == 0 {
        return if index < abi::BB_SESSION_WAYS {
            "shared".into()
        } else {
            format!("#{index}")
        };
    }
    let dev = device(key.ifindex).unwrap_or_else(|| format!("#{}", key.ifindex));
    let addr = address(key.addr);
    let name = match u32::from(key.kind) {
        abi::BB_SESSION_CONTROL if u32::from(key.part) == abi::BB_PART_NETWORK => {
            format!("{dev}/network")
        }
        abi::BB_SESSION_CONTROL if has_address(key) => format!("{dev}/control-{addr}"),
        abi::BB_SESSION_CONTROL => format!("{dev}/control"),
        abi::BB_SESSION_PLAIN => match key.part {
            0 => format!("{dev}/plain-{addr}"),
            part => format!("{dev}/plain-{addr}#{part}"),
        },
        abi::BB_SESSION_FLOW => format!("{dev}/flow-{:08x}", key.hash),
        abi::BB_SESSION_PREFIX => format!("{dev}/{addr}/{}", key.prefix),
        abi::BB_SESSION_INTERFACE => format!("{dev}/interface"),
        _ => format!("{dev}/{addr}"),
    };
    match key.user.checked_sub(1) {
        None => name,
        Some(uid) => format!("{name}/uid-{uid}"),
    }
}

/// Whether the packets of a session go to one address or network.
fn has_address(key: &abi::bb_session_key) -> bool {
    match u32::from(key.kind) {
        abi::BB_SESSION_INTERFACE => false,
        abi::BB_SESSION_CONTROL => key.addr != [0; 16],
        _ => true,
    }
}

/// Whose a session is: a user of this host, or a source of what the host forwards (`users` knows its address).
pub(super) fn user_name(
    session: &abi::bb_session,
    users: &Map<u32, abi::bb_user>,
) -> Option<String> {
    let key = &session.key;
    if let Some(uid) = key.user.checked_sub(1) {
        return Some(format!("uid-{uid}"));
    }
    if session.way.tag == 0 || key.media != 0 || session.user == 0 {
        return None;
    }
    let user = users.get(&u32::from(session.user)).ok()??;
    Some(address(user.key.addr).to_string())
}

/// Kind of a session. The shared one has no key: whatever found no way of its own is plain there.
pub(super) fn kind_of(session: &abi::bb_session) -> u32 {
    match session.way.tag {
        0 => abi::BB_SESSION_PLAIN,
        _ => u32::from(session.key.kind),
    }
}

/// Where the packets of a session go, if that is one address or network.
pub(super) fn address_of(session: &abi::bb_session) -> Option<IpAddr> {
    (session.way.tag != 0 && has_address(&session.key)).then(|| address(session.key.addr))
}

/// The word for a kind.
pub(super) const fn kind_name(kind: u32) -> &'static str {
    match kind {
        abi::BB_SESSION_CONTROL => "control",
        abi::BB_SESSION_PLAIN => "plain",
        abi::BB_SESSION_FLOW => "flow",
        abi::BB_SESSION_PREFIX => "prefix",
        abi::BB_SESSION_INTERFACE => "interface",
        _ => "dst",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::address::address_bytes;

    #[test]
    fn session_of_each_kind_has_its_api_name() {
        let session = |kind: u32, addr: &str, prefix, hash| abi::bb_session {
            way: abi::bb_way {
                tag: 1,
                ..Default::default()
            },
            key: abi::bb_session_key {
                addr: address_bytes(addr.parse().unwrap()),
                ifindex: 2,
                kind: kind as u8,
                prefix,
                hash,
                ..Default::default()
            },
            ..Default::default()
        };
        let name =
            |s: &abi::bb_session| session_name(99, s, |i| (i == 2).then(|| "eth0".to_string()));
        assert_eq!(
            name(&session(abi::BB_SESSION_DST, "10.0.0.2", 32, 0)),
            "eth0/10.0.0.2"
        );
        let mut of_user = session(abi::BB_SESSION_DST, "10.0.0.2", 32, 0);
        of_user.key.user = 1001;
        assert_eq!(name(&of_user), "eth0/10.0.0.2/uid-1000");
        assert_eq!(
            name(&session(abi::BB_SESSION_PREFIX, "2001:db8::", 32, 0)),
            "eth0/2001:db8::/32"
        );
        assert_eq!(
            name(&session(abi::BB_SESSION_FLOW, "10.0.0.2", 0, 0xbeef)),
            "eth0/flow-0000beef"
        );
        assert_eq!(
            name(&session(abi::BB_SESSION_INTERFACE, "::", 0, 0)),
            "eth0/interface"
        );
        let mut control = session(abi::BB_SESSION_CONTROL, "::", 0, 0);
        assert_eq!(name(&control), "eth0/control");
        control.key.user = 1001;
        assert_eq!(name(&control), "eth0/control/uid-1000");
        let mut network = session(abi::BB_SESSION_CONTROL, "::", 0, 0);
        network.key.part = abi::BB_PART_NETWORK as u8;
        assert_eq!(name(&network), "eth0/network");
        assert_eq!(
            name(&session(abi::BB_SESSION_CONTROL, "10.0.0.2", 0, 0)),
            "eth0/control-10.0.0.2"
        );
        assert_eq!(
            name(&session(abi::BB_SESSION_PLAIN, "10.0.0.2", 0, 0)),
            "eth0/plain-10.0.0.2"
        );
        let mut part = session(abi::BB_SESSION_PLAIN, "10.0.0.2", 0, 0);
        part.key.part = 16;
        assert_eq!(name(&part), "eth0/plain-10.0.0.2#16");
        assert_eq!(
            session_name(0, &abi::bb_session::default(), |_| None),
            "shared"
        );
    }
}
