//! What Prometheus gets: formats and how many lines; alerts and dashboard (agent/metrics) against a real one.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use bestby_bpf::abi;
use bestby_tests::agent::*;
use bestby_tests::load::{PEER, send_numbered};
use bestby_tests::netns::{Lab, linked_lab};
use bestby_tests::program::succeed;
use bestby_tests::{bpf, require};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};
use serde_json::{Value, json};
use zerocopy::IntoBytes as _;

/// Where alerts and dashboard are.
fn room() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../agent/metrics")
}

fn audio() -> Value {
    json!({"name": "audio", "proto": "udp", "dport": "5004", "lifetime": "10s", "priority": 0})
}

#[test]
fn metrics_come_in_the_format_that_accept_asks_for() {
    linked_lab(require::root(), |lab, _| {
        let agent = Agent::start(lab, &[]);
        agent.add(audio());
        let sample = "bestby_flow_in_packets_total{flow=\"audio\"} 0\n";
        let (head, text) = agent.exchange("GET", "/metrics", "", "");
        assert!(
            head.contains("content-type: text/plain; version=0.0.4"),
            "{head}"
        );
        assert!(text.contains(sample) && !text.contains("# EOF"), "{text}");
        let accept = "Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n";
        let (head, text) = agent.exchange("GET", "/metrics", accept, "");
        assert!(
            head.contains("content-type: application/openmetrics-text; version=1.0.0"),
            "{head}"
        );
        assert!(text.contains(sample) && text.ends_with("# EOF\n"), "{text}");
        let (status, message) = agent.refused("GET", "/metrics?session=x", None);
        assert_eq!(status, 400, "{message}");
    });
}

#[test]
fn reload_is_told_by_a_metric() {
    linked_lab(require::root(), |lab, _| {
        let path = file(
            lab,
            "bestby.toml",
            "[[interface]]\ndev = \"later0\"\nmode = \"tc\"\n",
        );
        let agent = Agent::start(lab, &["--config", path_str(&path)]);
        let has = |line: &str| {
            agent
                .request("GET", "/metrics", "")
                .1
                .lines()
                .any(|l| l == line)
        };
        // Wanted and not there.
        assert!(has("bestby_interface_configured{interface=\"later0\"} 1.0"));
        assert!(has("bestby_interface_attached{interface=\"later0\"} 0.0"));
        for (text, taken) in [("nonsense", 0), ("", 1)] {
            std::fs::write(&path, text).unwrap();
            agent.signal(libc::SIGHUP);
            let line = format!("bestby_config_last_reload_successful {taken}.0");
            wait_for(&line, || has(&line));
        }
        assert!(!agent.request("GET", "/metrics", "").1.contains("later0"));
    });
}

/// Writes sessions to addresses of 10.0.0.0/8 into the pinned table; session n has had n packets, one of them stale if
/// n is below `stale`.
fn fill_sessions(lab: &Lab, ifindex: u32, count: u32, stale: u32) {
    let map = MapHandle::from_pinned_path(lab.bpffs.join("bb_sessions")).unwrap();
    for n in 0..count {
        let [_, a, b, c] = n.to_be_bytes();
        let mut session = abi::bb_session {
            way: abi::bb_way {
                tag: n + 1,
                ..Default::default()
            },
            key: abi::bb_session_key {
                addr: bpf::mapped([10, a, b, c]),
                ifindex,
                kind: abi::BB_SESSION_DST as u8,
                prefix: 32,
                ..Default::default()
            },
            ..Default::default()
        };
        session.counters.packets_in = n.into();
        if n < stale {
            session.counters.dropped[abi::BB_DROP_STALE as usize] = 1;
        }
        let index = abi::BB_SESSION_WAYS + n;
        map.update(index.as_bytes(), session.as_bytes(), MapFlags::ANY)
            .unwrap();
    }
}

#[test]
fn ten_thousand_sessions_are_counted_and_the_worst_are_shown() {
    linked_lab(require::root(), |lab, _| {
        // No session of the kernel's own: it looks for a router for 12 s.
        std::fs::write("/proc/sys/net/ipv6/conf/v0/disable_ipv6", "1").unwrap();
        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc"}));
        agent.add(audio());
        let ifindex = agent.ok("GET", "/v1/interfaces", None)[0]["ifindex"]
            .as_u64()
            .unwrap();
        fill_sessions(lab, ifindex as u32, 10_000, 3);
        let scrape = |query: &str| agent.request("GET", &format!("/metrics{query}"), "").1;
        let shown = |text: &str| text.matches("\nbestby_session_in_packets_total{").count();
        let text = scrape("");
        assert!(
            text.lines().count() < 2000,
            "{} lines",
            text.lines().count()
        );
        assert_eq!(shown(&text), 20);
        let counted = "bestby_sessions{interface=\"v0\",kind=\"dst\"} 10000.0\n";
        assert!(text.contains(counted), "{text}");
        // Those that dropped come first, then those with most packets.
        for worst in ["10.0.0.0", "10.0.0.2", "10.0.39.15", "10.0.38.255"] {
            assert!(
                text.contains(&format!(
                    "bestby_session_in_packets_total{{session=\"v0/{worst}\""
                )),
                "{text}"
            );
        }
        assert!(!text.contains("v0/10.0.38.254\""));
        assert_eq!(shown(&scrape("?sessions=0")), 0);
        assert_eq!(shown(&scrape("?sessions=100")), 100);
        // On demand, each has its own; the shared session is one more where it carried a packet.
        let all = scrape("?sessions=all");
        assert!(shown(&all) >= 10_000, "{}", shown(&all));
        println!(
            "lines: {}, of all sessions {}",
            text.lines().count(),
            all.lines().count()
        );
    });
}

/// A Prometheus in the lab; killed at the end.
struct Prometheus<'l> {
    child: Child,
    lab: &'l Lab,
}

impl Drop for Prometheus<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.lab.dir.join("prometheus.log"));
            println!("prometheus said: {}", log.unwrap_or_default());
        }
    }
}

impl<'l> Prometheus<'l> {
    /// Starts it in the lab's namespace, with the files of `dir`.
    fn start(lab: &'l Lab, dir: &Path) -> Self {
        let log = std::fs::File::create(lab.dir.join("prometheus.log")).unwrap();
        let mut command = lab.netns.command("prometheus");
        command
            .arg(format!(
                "--config.file={}",
                dir.join("prometheus.yml").display()
            ))
            .arg(format!(
                "--storage.tsdb.path={}",
                lab.dir.join("tsdb").display()
            ))
            .args(["--web.listen-address=127.0.0.1:9090", "--log.level=warn"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let child = command.spawn().unwrap();
        let prometheus = Self { child, lab };
        wait_for("an answer of Prometheus", || {
            prometheus.get("/-/ready").is_some()
        });
        prometheus
    }

    /// Body of a good answer.
    fn get(&self, path: &str) -> Option<String> {
        self.lab.netns.enter(|| {
            let mut stream = TcpStream::connect("127.0.0.1:9090").ok()?;
            // 1.0: the answer comes in one piece and ends with the connection.
            write!(stream, "GET {path} HTTP/1.0\r\nHost: x\r\n\r\n").ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            let (head, body) = answer.split_once("\r\n\r\n")?;
            (head.split(' ').nth(1) == Some("200")).then(|| body.to_string())
        })
    }

    /// `data` of an answer of its API.
    fn api(&self, path: &str) -> Value {
        let text = self.get(&format!("/api/v1/{path}"));
        let text = text.unwrap_or_else(|| panic!("Prometheus refused {path}"));
        let mut answer: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(answer["status"], "success", "{path}: {answer}");
        answer["data"].take()
    }

    /// Series that a query yields now.
    fn query(&self, expression: &str) -> Vec<Value> {
        let encoded: String = expression.bytes().map(|b| format!("%{b:02x}")).collect();
        let data = self.api(&format!("query?query={encoded}"));
        data["result"].as_array().unwrap().clone()
    }

    /// Names of all series.
    fn names(&self) -> Vec<String> {
        strings(&self.api("label/__name__/values"))
    }

    /// Every alert's name and expression of one file, and whether it could be evaluated.
    fn rules(&self, file: &str) -> Vec<(String, String, String)> {
        let data = self.api("rules");
        let groups = data["groups"].as_array().unwrap().iter();
        let groups = groups.filter(|g| g["file"].as_str().unwrap().ends_with(file));
        groups
            .flat_map(|g| g["rules"].as_array().unwrap())
            .map(|r| {
                let part = |name: &str| r[name].as_str().unwrap_or_default().to_string();
                (part("name"), part("query"), part("health"))
            })
            .collect()
    }
}

fn strings(list: &Value) -> Vec<String> {
    let list = list.as_array().unwrap().iter();
    list.map(|v| v.as_str().unwrap().to_string()).collect()
}

/// Names of bestby's in an expression.
fn named(expression: &str) -> Vec<String> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = words.filter(|w| w.starts_with("bestby_"));
    ours.map(str::to_string).collect()
}

/// What an expression names and Prometheus has not.
fn missing(expression: &str, there: &[String]) -> Vec<String> {
    named(expression)
        .into_iter()
        .filter(|n| !there.contains(n))
        .collect()
}

/// Title and expressions of the dashboard's panels, its variables set to what matches everything.
fn panels(board: &Value) -> Vec<(String, Vec<String>)> {
    let panels = board["panels"].as_array().unwrap().iter();
    let panels = panels.filter(|p| p["type"] != "row");
    panels
        .map(|p| {
            let targets = p["targets"].as_array().unwrap().iter();
            let expressions = targets.map(|t| {
                let text = t["expr"].as_str().unwrap();
                text.replace("$__rate_interval", "1m")
                    .replace("$instance", ".*")
                    .replace("$interface", ".*")
            });
            (
                p["title"].as_str().unwrap().to_string(),
                expressions.collect(),
            )
        })
        .collect()
}

/// The files of agent/metrics in the lab, with a rule file of a metric that is nowhere; scraped each second.
fn configured(lab: &Lab) -> PathBuf {
    let dir = lab.dir.join("metrics");
    std::fs::create_dir(&dir).unwrap();
    std::fs::copy(room().join("alerts.yml"), dir.join("alerts.yml")).unwrap();
    let config = std::fs::read_to_string(room().join("prometheus.yml")).unwrap();
    let config = config
        .replace("scrape_interval: 15s", "scrape_interval: 1s")
        .replace(
            "rule_files: [alerts.yml]",
            "global: { evaluation_interval: 1s }\nrule_files: [alerts.yml, wrong.yml]",
        );
    assert!(
        config.contains("wrong.yml") && config.contains(" 1s\n"),
        "{config}"
    );
    std::fs::write(dir.join("prometheus.yml"), config).unwrap();
    let wrong = "groups: [{ name: wrong, rules: [{ alert: Wrong, expr: 'rate(bestby_unheard_of_total[5m]) > 0' }] }]\n";
    std::fs::write(dir.join("wrong.yml"), wrong).unwrap();
    dir
}

#[test]
fn alerts_and_dashboard_hold_against_a_prometheus_that_scrapes_an_agent() {
    linked_lab(require::prometheus(), |lab, _| {
        let config =
            "[agent]\nmetrics = \"127.0.0.1:9464\"\n[[peer]]\naddr = \"10.9.0.2\"\nowd = \"5ms\"\n";
        let config = file(lab, "bestby.toml", config);
        let agent = Agent::start(lab, &["--config", path_str(&config)]);
        let mode = if require::bpf_qdisc().is_ok() {
            "qdisc"
        } else {
            "tc"
        };
        agent.attach(json!({"dev": "v0", "mode": mode, "rate": "200kbit"}));
        agent.add(json!({"name": "video", "proto": "udp", "dport": 5004, "lifetime": "50ms"}));
        let prometheus = Prometheus::start(lab, &configured(lab));
        wait_for("a scrape", || {
            !prometheus.query("up{job=\"bestby\"} == 1").is_empty()
        });
        // Packets between two scrapes, so that every rate has one.
        let pause = Duration::from_millis(2);
        send_numbered(&lab.netns, (PEER, 5004), 1000, pause, |n| n < 200);
        let dropped = "sum(rate(bestby_flow_dropped_packets_total{flow=\"video\"}[1m])) > 0";
        wait_for("drops", || !prometheus.query(dropped).is_empty());
        let targets = prometheus.api("targets");
        assert_eq!(targets["activeTargets"][0]["lastError"], "", "{targets}");

        // Alerts: each is evaluated, and names what is there.
        let evaluated = || {
            let rules = prometheus.rules("alerts.yml");
            !rules.is_empty() && rules.iter().all(|(_, _, health)| health == "ok")
        };
        wait_for("an evaluation of every alert", evaluated);
        let there = prometheus.names();
        for (alert, expression, _) in prometheus.rules("alerts.yml") {
            assert_eq!(
                missing(&expression, &there),
                [""; 0],
                "{alert}: {expression}"
            );
        }
        // The same check refuses an alert whose metric is nowhere.
        let wrong = prometheus.rules("wrong.yml");
        assert_eq!(missing(&wrong[0].1, &there), ["bestby_unheard_of_total"]);

        // Dashboard: every expression is understood; it has series wherever mode and rule allow.
        let board: Value =
            serde_json::from_str(&std::fs::read_to_string(room().join("dashboard.json")).unwrap())
                .unwrap();
        for (title, expressions) in panels(&board) {
            for expression in expressions {
                let series = prometheus.query(&expression);
                let absent = missing(&expression, &there);
                // No TCP measured a round trip here, and mode tc has no queue of its own.
                let unmeasured = ["Age of the delay", "Queue behind this host"];
                let allowed =
                    unmeasured.contains(&title.as_str()) || (mode == "tc" && title == "Memory");
                assert!(
                    allowed || (absent.is_empty() && !series.is_empty()),
                    "{title}: {expression}: {absent:?}"
                );
            }
        }
        assert!(prometheus.query("bestby_unheard_of_total").is_empty());
        println!("{} names", there.len());
    });
}

#[test]
fn promtool_accepts_alerts_and_exposition_and_refuses_a_wrong_one() {
    linked_lab(require::prometheus(), |lab, _| {
        let promtool = |arguments: &[&str]| {
            let mut command = std::process::Command::new("promtool");
            command.args(arguments).current_dir(room());
            command
        };
        succeed(&mut promtool(&["check", "rules", "alerts.yml"]));
        succeed(&mut promtool(&["check", "config", "prometheus.yml"]));
        // Each alert fires when it should, and not before.
        succeed(&mut promtool(&["test", "rules", "alerts_test.yml"]));
        let tests = std::fs::read_to_string(room().join("alerts_test.yml")).unwrap();
        let rules = std::fs::read_to_string(room().join("alerts.yml")).unwrap();
        for alert in rules
            .lines()
            .filter_map(|l| l.trim().strip_prefix("- alert: "))
        {
            assert!(
                tests.contains(&format!("alertname: {alert}\n")),
                "{alert} has no test"
            );
        }

        let agent = Agent::start(lab, &[]);
        agent.attach(json!({"dev": "v0", "mode": "tc", "rate": "1mbit", "observe": true}));
        agent.add(audio());
        let text = agent.request("GET", "/metrics", "").1;
        let lint = |text: &str| {
            let path = file(lab, "metrics.txt", text);
            let mut command = promtool(&["check", "metrics"]);
            let output = command
                .stdin(std::fs::File::open(path).unwrap())
                .output()
                .unwrap();
            (
                output.status.success(),
                String::from_utf8_lossy(&output.stderr).into_owned(),
            )
        };
        assert_eq!(lint(&text), (true, String::new()));
        let wrong = text + "# TYPE bestby_wrong counter\nbestby_wrong 1\n";
        assert!(!lint(&wrong).0, "a counter without _total passes");
    });
}

/// Panels have ids of their own and the data source that the reader chooses.
#[test]
fn dashboard_panels_are_distinct_and_name_no_data_source() {
    let text = std::fs::read_to_string(room().join("dashboard.json")).unwrap();
    let board: Value = serde_json::from_str(&text).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let mut ids: Vec<u64> = panels.iter().map(|p| p["id"].as_u64().unwrap()).collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), panels.len());
    for panel in panels.iter().filter(|p| p["type"] != "row") {
        assert_eq!(
            panel["datasource"]["uid"], "${datasource}",
            "{}",
            panel["title"]
        );
        assert!(!panel["description"].as_str().unwrap().is_empty());
    }
}
