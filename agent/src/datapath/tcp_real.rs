//! TCP-Real in the control API: on, off, what its connections do, what doctor says of it.

use std::path::PathBuf;

use bestby_api::{Check, CheckStatus, Done, RealRequest, TcpReal};

use crate::datapath::Datapath;
use crate::error::{Error, Result};
use crate::kernel::sys;
use crate::kernel::tcp_real::list;

/// Name of the congestion control.
const NAME: &str = "bestby_real";

/// A sysctl of TCP in the agent's namespace; empty where it cannot be read.
fn sysctl(name: &str) -> String {
    std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}"))
        .map(|text| text.trim().to_string())
        .unwrap_or_default()
}

impl Datapath {
    /// The cgroup whose sockets are to speak it.
    fn tcp_real_cgroup(&self, request: &RealRequest) -> Result<PathBuf> {
        let Some(path) = &request.cgroup else {
            return self.cgroup.clone().ok_or_else(|| {
                Error::unsupported("no cgroup2 tree is mounted, so no socket can speak TCP-Real")
                    .hint("mount a cgroup2 tree and restart bestbyd")
            });
        };
        let directory = self.names.cgroup_directory(path);
        directory.filter(|d| sys::is_cgroup2(d)).ok_or_else(|| {
            Error::missing(format!("there is no cgroup {path}"))
                .hint("make it first; paths begin at the top of the cgroup2 tree")
        })
    }

    /// PUT /v1/tcp-real.
    ///
    /// # Errors
    /// There is no such cgroup, or the kernel's refusal.
    pub fn tcp_real_on(&mut self, request: RealRequest, from_file: bool) -> Result<Done> {
        let cgroup = self.tcp_real_cgroup(&request)?;
        let links = self.tc.links()?;
        let again = self.tcp_real.running.is_some();
        let message = format!(
            "TCP-Real is on: mode {}, levels 1 to {}, sockets below {}",
            request.mode,
            request.max_level,
            cgroup.display()
        );
        self.tcp_real.on(request, cgroup, from_file, &links)?;
        let mut warnings = Vec::new();
        if !again {
            warnings.push(
                "servers that listen already answer without it until they listen again".into(),
            );
        }
        Ok(Done { message, warnings })
    }

    /// DELETE /v1/tcp-real.
    ///
    /// # Errors
    /// A pin cannot be removed.
    pub fn tcp_real_off(&mut self) -> Result<Done> {
        let was = self.tcp_real.running.is_some();
        self.tcp_real.off()?;
        let mut warnings = Vec::new();
        if sysctl("tcp_congestion_control") == NAME {
            warnings.push(format!(
                "{NAME} is still the default of new connections, which are plain Reno now: \
                 sysctl net.ipv4.tcp_congestion_control=reno"
            ));
        }
        let message = if was {
            "TCP-Real is off; connections go on as Reno"
        } else {
            "TCP-Real is off, as it was"
        };
        Ok(Done {
            message: message.into(),
            warnings,
        })
    }

    /// GET /v1/tcp-real.
    ///
    /// # Errors
    /// A pin is gone.
    pub fn tcp_real(&self) -> Result<TcpReal> {
        let Some(running) = &self.tcp_real.running else {
            return Ok(TcpReal::default());
        };
        let (connections, more) = list::connections(&self.tcp_real.pin("list"))?;
        Ok(TcpReal {
            on: Some(running.kept.request.clone()),
            cgroup: running.kept.cgroup.display().to_string(),
            interfaces: u32::try_from(running.interfaces.len()).unwrap_or(u32::MAX),
            counters: self.tcp_real.counted()?.unwrap_or_default(),
            connections,
            more,
        })
    }

    /// Brings it to what the file says: on as asked, or off if an earlier file had switched it on.
    pub(crate) fn follow_file(&mut self, asked: Option<&RealRequest>) -> Result<()> {
        let running = self.tcp_real.running.as_ref().map(|r| &r.kept);
        match asked {
            Some(request) if running.is_none_or(|r| r.request != *request || !r.from_file) => {
                self.tcp_real_on(request.clone(), true).map(drop)
            }
            None if running.is_some_and(|r| r.from_file) => self.tcp_real.off(),
            _ => Ok(()),
        }
    }

    /// What doctor says of it.
    pub(crate) fn tcp_real_checks(&self, checks: &mut Vec<Check>) {
        let mut say = |status, detail: String, hint: &str| {
            checks.push(Check {
                // Whether the kernel can do it has the id without `-state`.
                id: "tcp-real-state".into(),
                ..Check::new("TCP-Real", status, detail, hint)
            });
        };
        let Some(running) = &self.tcp_real.running else {
            if sysctl("tcp_congestion_control") == NAME {
                say(
                    CheckStatus::Warn,
                    format!("off, but {NAME} is the default congestion control: plain Reno"),
                    "sysctl net.ipv4.tcp_congestion_control=reno",
                );
            }
            return;
        };
        let registered = sysctl("tcp_available_congestion_control");
        if !registered.split(' ').any(|name| name == NAME) {
            say(
                CheckStatus::Fail,
                format!("{NAME} is not registered any more"),
                "bestby tcp-real off; bestby tcp-real on",
            );
        } else if !sys::is_cgroup2(&running.kept.cgroup) {
            say(
                CheckStatus::Fail,
                format!("the cgroup {} is gone", running.kept.cgroup.display()),
                "bestby tcp-real on --cgroup PATH",
            );
        } else if running.interfaces.is_empty() {
            say(
                CheckStatus::Warn,
                "on, and measured where TCP gets its packets: rates are coarse".into(),
                "needs tcx (6.6)",
            );
        } else {
            say(
                CheckStatus::Ok,
                format!(
                    "on: mode {}, sockets below {}, interfaces that measure: {}",
                    running.kept.request.mode,
                    running.kept.cgroup.display(),
                    running.interfaces.len()
                ),
                "",
            );
        }
    }
}
