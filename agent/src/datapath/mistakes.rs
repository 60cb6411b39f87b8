//! What is allowed and probably not meant, of all that is set now: for the commands, the journal and doctor.

use bestby_api::{
    Controlled, DevName, FlowName, InterfaceSettings, Owd, PeerConfig, Rate, Setup, Warning,
    shortened,
};
use bestby_bpf::abi;

use crate::datapath::Datapath;
use crate::kernel::address::address;
use crate::observed::attached::Attached;
use crate::observed::speed::{link_speed, tags_priority};

fn lines(warnings: Vec<Warning>) -> Vec<String> {
    let told = shortened(warnings);
    told.iter().map(ToString::to_string).collect()
}

/// What the operator set of a receiver.
pub(crate) fn receiver(key: &abi::bb_addr, peer: &abi::bb_peer) -> PeerConfig {
    let said = |flag| peer.flags & flag != 0;
    PeerConfig {
        addr: address(key.addr),
        rate: Rate::from_bytes_per_s(peer.rate).filter(|_| said(abi::BB_PEER_RATE)),
        owd: Owd::from_ns(peer.owd_ns).filter(|_| said(abi::BB_PEER_OWD)),
    }
}

impl Datapath {
    /// What the operator set of receivers, by the file and by commands. What applications say is no setting.
    pub(crate) fn receivers(&self) -> Vec<PeerConfig> {
        let all = self.shared.peers.entries().unwrap_or_default();
        all.iter()
            .filter(|(_, peer)| peer.flags & abi::BB_PEER_OPERATOR != 0)
            .map(|(key, peer)| receiver(key, peer))
            .collect()
    }

    fn controlled(&self, slot: u32, attached: &Attached) -> Controlled {
        let device = self.iface_counted(slot, attached).map(|c| c.device);
        Controlled {
            settings: InterfaceSettings {
                mode: attached.mode,
                ..attached.request.clone()
            },
            speed_mbit_s: link_speed(attached.dev.as_str(), attached.ifindex),
            tags_priority: !attached.steers && tags_priority(attached.dev.as_str()),
            pushed_back: device.ok().map(|device| device.is_some()),
        }
    }

    fn setup(&self) -> Setup<'_> {
        Setup::new(
            self.book.entries.iter().map(|e| &e.rule).collect(),
            self.receivers(),
            self.attached
                .iter()
                .map(|(slot, attached)| self.controlled(*slot, attached))
                .collect(),
        )
    }

    /// All that is probably a mistake.
    pub(crate) fn mistakes(&self) -> Vec<Warning> {
        self.setup().all()
    }

    /// What is probably wrong with a rule, and with what comes behind it.
    pub(crate) fn mistakes_of_rule(&self, name: &FlowName) -> Vec<String> {
        let Ok(at) = self.book.position(name) else {
            return Vec::new();
        };
        let setup = self.setup();
        let mut all = setup.of_rule(at);
        all.extend(setup.hidden_by(at));
        lines(all)
    }

    /// What is probably wrong with what is set of a receiver.
    pub(crate) fn mistakes_of_receiver(&self, receiver: &PeerConfig) -> Vec<String> {
        lines(self.setup().of_receiver(receiver))
    }

    /// What is probably wrong with an attached interface, and with rates of receivers because of it.
    pub(crate) fn mistakes_of_interface(&self, dev: &DevName) -> Vec<String> {
        let Some((slot, attached)) = self.by_name(dev) else {
            return Vec::new();
        };
        let controlled = self.controlled(slot, attached);
        lines(self.setup().of_interface(&controlled))
    }
}
