//! Programs as direct-action filters: at clsact, for kernels without tcx, and at the root of mode tc's HTB tree.

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};

use crate::error::Result;
use crate::kernel::netlink::{Raw, c_string, encode};
use crate::kernel::tc::{Link, TCA_KIND, TCA_OPTIONS, Tc, handle, refused, tcmsg, word};

const TC_H_CLSACT: u32 = 0xffff_fff1;
const TC_H_CLSACT_INGRESS: u32 = 0xffff_fff2;
const TC_H_CLSACT_EGRESS: u32 = 0xffff_fff3;
const TCA_BPF_CLASSID: u16 = 3;
const TCA_BPF_FD: u16 = 6;
const TCA_BPF_NAME: u16 = 7;
const TCA_BPF_FLAGS: u16 = 8;
const TCA_BPF_FLAG_ACT_DIRECT: u32 = 1;

/// Place of our filters: fixed, so that a later agent finds them.
const FILTER_PRIORITY: u32 = 0xb;
const FILTER_HANDLE: u32 = 0xbb;

/// Where at an interface a program of ours runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// What leaves: the classifier.
    Egress,
    /// What comes in: the answers of receivers.
    Ingress,
}

impl Side {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Egress, Self::Ingress];

    const fn parent(self) -> u32 {
        match self {
            Self::Egress => TC_H_CLSACT_EGRESS,
            Self::Ingress => TC_H_CLSACT_INGRESS,
        }
    }

    /// What of ours runs there, in words.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Egress => "the classifier",
            Self::Ingress => "the program that reads answers",
        }
    }
}

fn filter_message(kind: u16, ifindex: u32, parent: u32, attributes: &[(u16, Vec<u8>)]) -> Raw {
    // tcm_info: priority and protocol (ETH_P_ALL, network order).
    let protocol = u32::from((libc::ETH_P_ALL as u16).to_be());
    tcmsg(
        kind,
        ifindex,
        FILTER_HANDLE,
        parent,
        FILTER_PRIORITY << 16 | protocol,
        attributes,
    )
}

impl Tc {
    /// Attaches a program as a direct-action filter of clsact, for kernels without tcx; one of an earlier agent is
    /// replaced.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn filter(&mut self, link: &Link, side: Side, program: i32) -> Result<()> {
        let clsact = tcmsg(
            libc::RTM_NEWQDISC,
            link.ifindex,
            0xffff_0000,
            TC_H_CLSACT,
            0,
            &[(TCA_KIND, c_string("clsact"))],
        );
        match self.netlink.change(NLM_F_CREATE | NLM_F_EXCL, clsact) {
            Err(e) if e.errno() == Some(libc::EEXIST) => {}
            other => other
                .map_err(|e| refused(format!("interface {}: creating clsact", link.name), &e))?,
        }
        let what = format!("attaching {} by clsact", side.program());
        self.place_filter(link, side.parent(), program, &[], &what)
    }

    /// Attaches the program that tells the HTB tree each packet's leaf; one of an earlier agent is replaced. It goes
    /// when the tree goes.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn leaf_filter(&mut self, link: &Link, program: i32) -> Result<()> {
        // The program says the minor number only.
        let class = (TCA_BPF_CLASSID, handle(0).to_ne_bytes().to_vec());
        let what = "attaching the leaf filter to the HTB tree";
        self.place_filter(link, handle(0), program, &[class], what)
    }

    fn place_filter(
        &mut self,
        link: &Link,
        parent: u32,
        program: i32,
        more: &[(u16, Vec<u8>)],
        what: &str,
    ) -> Result<()> {
        let mut options = more.to_vec();
        options.extend([
            (TCA_BPF_FD, program.to_ne_bytes().to_vec()),
            (TCA_BPF_NAME, c_string("bestby")),
            (
                TCA_BPF_FLAGS,
                TCA_BPF_FLAG_ACT_DIRECT.to_ne_bytes().to_vec(),
            ),
        ]);
        let all = [(TCA_KIND, c_string("bpf")), (TCA_OPTIONS, encode(&options))];
        let message = filter_message(libc::RTM_NEWTFILTER, link.ifindex, parent, &all);
        self.netlink
            .change(NLM_F_CREATE | NLM_F_REPLACE, message)
            .map_err(|e| refused(format!("interface {}: {what}", link.name), &e))
    }

    fn filters(&mut self, ifindex: u32, parent: u32) -> Result<Vec<Raw>> {
        let ask = tcmsg(libc::RTM_GETTFILTER, ifindex, 0, parent, 0, &[]);
        let answers = match self.netlink.dump(ask) {
            // No such qdisc, no filter.
            Err(e) if matches!(e.errno(), Some(libc::ENOENT | libc::EINVAL)) => Vec::new(),
            other => other.map_err(|e| refused("listing the filters".into(), &e))?,
        };
        let here = answers
            .into_iter()
            .filter(|raw| raw.kind == libc::RTM_NEWTFILTER && word(&raw.body, 1) == ifindex);
        Ok(here.collect())
    }

    fn has_filter_at(&mut self, ifindex: u32, parent: u32) -> Result<bool> {
        let all = self.filters(ifindex, parent)?;
        Ok(all.iter().any(|raw| {
            word(&raw.body, 2) == FILTER_HANDLE && word(&raw.body, 4) >> 16 == FILTER_PRIORITY
        }))
    }

    /// Whether our clsact filter is there.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn has_filter(&mut self, ifindex: u32, side: Side) -> Result<bool> {
        self.has_filter_at(ifindex, side.parent())
    }

    /// Whether the HTB tree has its leaf filter.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn has_leaf_filter(&mut self, ifindex: u32) -> Result<bool> {
        self.has_filter_at(ifindex, handle(0))
    }

    /// Removes our clsact filter, if there is one, and clsact with it unless others have filters there.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn remove_filter(&mut self, ifindex: u32, name: &str, side: Side) -> Result<()> {
        let kind = [(TCA_KIND, c_string("bpf"))];
        let message = filter_message(libc::RTM_DELTFILTER, ifindex, side.parent(), &kind);
        match self.netlink.change(0, message) {
            Err(e) if matches!(e.errno(), Some(libc::ENODEV | libc::ENOENT | libc::EINVAL)) => {
                return Ok(());
            }
            other => other.map_err(|e| {
                refused(format!("interface {name}: removing the clsact filter"), &e)
            })?,
        }
        for side in Side::ALL {
            if !self.filters(ifindex, side.parent())?.is_empty() {
                return Ok(());
            }
        }
        let clsact = tcmsg(
            libc::RTM_DELQDISC,
            ifindex,
            0xffff_0000,
            TC_H_CLSACT,
            0,
            &[],
        );
        self.netlink
            .change(0, clsact)
            .map_err(|e| refused(format!("interface {name}: removing clsact"), &e))
    }
}
