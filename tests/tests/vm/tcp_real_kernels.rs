//! TCP-Real on kernels that have what it needs (6.12, the newest), and on one that does not (6.1).

use bestby_tests::agent::{Agent, file, path_str};
use bestby_tests::netns::linked_lab;
use bestby_tests::require;
use nix::sys::socket::AddressFamily;
use serde_json::{Value, json};

use crate::tcp_real_lab::*;

#[test]
fn kernel_below_6_4_refuses_and_later_ones_measure() {
    linked_lab(require::root(), |lab, peer| {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let agent = Agent::start(lab, &[]);
        if release.starts_with("6.1.") {
            let (status, said) = agent.refused("PUT", API, Some(json!({})));
            println!("{status}: {said}");
            assert!(said.contains("6.4"), "{said}");
            // Nothing of it is left, and the rest of the agent works.
            assert!(!lab.bpffs.join("real").exists());
            assert_eq!(agent.ok("GET", API, None)["on"], Value::Null);
            let refused = peer.enter(|| sender(AddressFamily::Inet, REAL).unwrap_err());
            assert_eq!(refused.raw_os_error(), Some(libc::ENOENT));
            assert_eq!(agent.complaints("TCP-Real"), [""; 0]);
            agent.kill();
            // Asked for by the file, it is missed, and said so; the agent starts.
            let path = file(lab, "bestby.toml", "[tcp_real]\n");
            let agent = Agent::start(lab, &["--config", path_str(&path)]);
            assert_eq!(agent.ok("GET", API, None)["on"], Value::Null);
            assert!(agent.log().contains("6.4"), "{}", agent.log());
            return;
        }
        peer.run("ip link set dev v1 gso_max_segs 1");
        switch_on(&agent);
        assert_eq!(agent.complaints("TCP-Real"), [""; 0]);
        let listener = listen(lab, HERE[0]);
        let mut pair = connect(lab, peer, &listener, REAL);
        pair.transfer(2_000_000, || ());
        assert_eq!(count(&agent, "negotiated"), 2);
        assert!(count(&agent, "measured") + count(&agent, "unmeasured") > 0);
        // lo and v0.
        assert_eq!(agent.ok("GET", API, None)["interfaces"], json!(2));
        agent.ok("DELETE", API, None);
        assert!(!lab.bpffs.join("real").exists());
        pair.transfer(500_000, || ());
    });
}
