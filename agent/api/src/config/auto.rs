//! Tests: the file says that a rate is found, and who is asked.

use super::tests::errors;
use super::*;
use crate::Probe;

#[test]
fn rate_that_is_found_is_read_and_written_and_a_wrong_one_refused() {
    const FILE: &str =
        "[[interface]]\ndev = \"eth0\"\nrate = \"auto:..10mbit\" # found\nprobe = \"none\"\n";
    let config = Config::parse(FILE, "f").unwrap();
    let iface = &config.interfaces[0];
    assert_eq!(iface.rate, Some("auto:64kbit..10mbit".parse().ok()));
    assert_eq!(iface.probe, Some(Probe::None));
    assert_eq!(Config::parse(&config.to_toml(), "f").unwrap(), config);
    let mut document = Document::parse(FILE, "f").unwrap();
    let mut changed = iface.clone();
    changed.probe = "192.0.2.1".parse().ok();
    document.put_interface(&changed).unwrap();
    let text = document.text();
    assert!(
        text.contains("# found") && text.contains("probe = \"192.0.2.1\""),
        "{text}"
    );
    for (text, reason) in [
        ("rate = \"auto:..\"", "bound"),
        ("rate = \"auto:2mbit..1mbit\"", "above"),
        ("probe = \"224.0.0.1\"", "one host"),
        ("probe = \"me\"", "neither"),
    ] {
        let text = format!("[[interface]]\ndev = \"eth0\"\n{text}\n");
        let (line, message) = errors(&text).remove(0);
        assert!(line == 3 && message.contains(reason), "{text}: {message}");
    }
}
