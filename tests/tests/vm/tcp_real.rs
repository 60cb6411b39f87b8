//! TCP-Real on the newest kernel, as on this machine's; and with VLAN tags, which this machine's kernel does not know.

#[path = "../root/tcp_real.rs"]
mod cases;

use std::net::TcpListener;

use serde_json::json;

use crate::tcp_real_lab::*;

#[test]
fn connection_over_a_vlan_is_measured_and_told() {
    with_agent(|lab, peer, agent| {
        for (netns, dev, address) in [
            (&lab.netns, "v0", "10.9.5.1/24"),
            (peer, "v1", "10.9.5.2/24"),
        ] {
            netns.run(&format!(
                "ip link add link {dev} name {dev}.5 gso_max_segs 1 type vlan id 5"
            ));
            netns.run(&format!("ip addr add {address} dev {dev}.5"));
            netns.run(&format!("ip link set {dev}.5 up"));
        }
        switch_on(&agent);
        let listener = in_cgroup(&lab.cgroup, || TcpListener::bind("10.9.5.1:0").unwrap());
        let mut pair = connect(lab, peer, &listener, REAL);
        // lo, v0 and v0.5.
        assert_eq!(agent.ok("GET", API, None)["interfaces"], json!(3));
        pair.transfer(500_000, || ());
        let sends = pair.sends(&agent);
        assert_eq!(sends["state"], "real", "{sends}");
        assert!(sends["rate_bytes_s"].as_u64() > Some(0), "{sends}");
    });
}
