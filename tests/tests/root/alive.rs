//! Whether the agent is alive: what systemd's watchdog hears, and what becomes of those who wait for an answer.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use bestby_tests::agent::{Agent, command};
use bestby_tests::netns::{Lab, linked_lab};
use bestby_tests::require;

/// A thread of a process that stands still until this is dropped.
struct Stopped(i32);

impl Stopped {
    /// Stops the thread of this name.
    fn thread(pid: i32, name: &str) -> Self {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let of = |task: &std::path::Path| std::fs::read_to_string(task.join("comm")).unwrap();
        let mut tasks = tasks.map(|t| t.unwrap().path());
        let task = tasks.find(|t| of(t).trim() == name).expect("its thread");
        let tid: i32 = task.file_name().unwrap().to_str().unwrap().parse().unwrap();
        for request in [libc::PTRACE_SEIZE, libc::PTRACE_INTERRUPT] {
            // SAFETY: these requests read and write no memory of ours; the thread is of a child of ours.
            let done = unsafe { libc::ptrace(request, tid, 0, 0) };
            assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        }
        // SAFETY: waits for the thread that was just told to stop, and wants no status.
        let stopped = unsafe { libc::waitpid(tid, std::ptr::null_mut(), libc::__WALL) };
        assert_eq!(stopped, tid);
        Self(tid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // SAFETY: as above; it fails only if the thread is gone.
        unsafe { libc::ptrace(libc::PTRACE_DETACH, self.0, 0, 0) };
    }
}

/// An agent whose watchdog wants to be fed ten times a second, and what it tells systemd.
fn watched(lab: &Lab) -> (Agent, UnixDatagram) {
    let path = lab.dir.join("notify");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let mut command = command(lab, &[]);
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "300000");
    (
        Agent::spawn(command, lab.dir.join("s"), lab.dir.join("log")),
        systemd,
    )
}

fn word(systemd: &UnixDatagram) -> Option<String> {
    let mut buffer = [0; 256];
    let length = systemd.recv(&mut buffer).ok()?;
    Some(
        String::from_utf8_lossy(&buffer[..length])
            .trim()
            .to_string(),
    )
}

#[test]
fn watchdog_is_fed_only_while_the_data_path_answers() {
    linked_lab(require::root(), |lab, _| {
        let (agent, systemd) = watched(lab);
        assert_eq!(word(&systemd).unwrap(), "READY=1");
        assert_eq!(word(&systemd).unwrap(), "WATCHDOG=1");
        let stopped = Stopped::thread(agent.pid(), "datapath");
        systemd
            .set_read_timeout(Some(Duration::from_secs(1)))
            .unwrap();
        // What was on its way.
        while word(&systemd).is_some() {}
        assert_eq!(word(&systemd), None, "nobody is there");
        drop(stopped);
        systemd
            .set_read_timeout(Some(Duration::from_secs(60)))
            .unwrap();
        assert_eq!(word(&systemd).unwrap(), "WATCHDOG=1");
        agent.terminate();
    });
}

#[test]
fn stop_waits_for_the_answers_that_are_owed() {
    linked_lab(require::root(), |lab, _| {
        let (agent, systemd) = watched(lab);
        std::thread::scope(|scope| {
            let stopped = Stopped::thread(agent.pid(), "datapath");
            let asked = scope.spawn(|| agent.ok("GET", "/v1/status", None));
            // An open event stream is no debt.
            let listens = scope.spawn(|| agent.try_exchange("GET", "/v1/events", "", ""));
            std::thread::sleep(Duration::from_secs(1));
            agent.signal(libc::SIGTERM);
            while word(&systemd).unwrap() != "STOPPING=1" {}
            assert!(!asked.is_finished());
            drop(stopped);
            assert!(asked.join().unwrap()["version"].is_string());
            listens.join().unwrap().unwrap();
        });
        agent.terminate();
    });
}
