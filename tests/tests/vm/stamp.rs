//! LPD's option and a packet that somebody else holds, too: the kernel panics where such a one grows. Needs pktgen,
//! which not every kernel has: run in the VM (`just test-vm`).

use std::net::UdpSocket;

use bestby_bpf::abi::*;
use bestby_tests::{
    agent::wait_for,
    bpf::{Lab, Rule, iface},
    clock::SECOND,
    netns::{ifindex, linked_lab, shell, try_shell},
    require,
};

const PORT: u16 = 5004;

fn pktgen() -> Result<(), String> {
    require::root()?;
    try_shell("modprobe pktgen").map(drop)
}

#[test]
fn stamp_of_a_packet_that_pktgen_holds_is_left_out() {
    if !require::can(pktgen()) {
        return;
    }
    linked_lab(require::root(), |_, peer| {
        let mut lab = Lab::bare();
        lab.iface(0, &iface(ifindex("v0"), BB_MODE_TC));
        let mut rule = Rule::new().dport(PORT).lifetime(SECOND);
        rule.says.flags |= BB_RULE_STAMP as u8;
        lab.rules(&[rule]);
        shell("tc qdisc add dev v0 clsact");
        lab.attach("v0");
        let far = peer.run("ip -o link show v1");
        let far = far.split("ether ").nth(1).unwrap()[..17].to_owned();
        shell(&format!(
            "g=/proc/net/pktgen
             echo rem_device_all >$g/kpktgend_0; echo add_device v0 >$g/kpktgend_0
             for line in 'count 10' 'pkt_size 200' 'xmit_mode queue_xmit' 'dst 10.9.0.2' \\
                 'src_min 10.9.0.1' 'src_max 10.9.0.1' 'udp_dst_min {PORT}' 'udp_dst_max {PORT}' \\
                 'dst_mac {far}'; do
                 echo \"$line\" >$g/v0
             done
             echo start >$g/pgctrl; echo rem_device_all >$g/kpktgend_0"
        ));
        wait_for("pktgen's packets", || lab.global(BB_G_STAMP_SHARED) == 10);
        assert_eq!(lab.global(BB_G_STAMPED), 0);
        // One of a socket is held by nobody else.
        let sender = UdpSocket::bind("10.9.0.1:0").unwrap();
        sender.send_to(&[0; 100], ("10.9.0.2", PORT)).unwrap();
        assert_eq!(lab.global(BB_G_STAMPED), 1);
    });
}
