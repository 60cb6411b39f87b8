//! Tests of the file that the package brings.

use super::*;

/// The file that the package brings.
const PACKAGED: &str = include_str!("../../../packaging/bestby.toml");

#[test]
fn packaged_file_shows_every_setting_of_every_table() {
    // As an operator would take the comments away, but for prose and what excludes its neighbours.
    let examples: String = PACKAGED
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .filter(|line| !line.starts_with([' ', '#']))
        .map(|line| format!("{}\n", line.replace("rtp_pt = [111, 63]", "rtp_pt = [96]")))
        .collect();
    let config = Config::parse(&examples, "bestby.toml").unwrap();
    assert_eq!((config.interfaces.len(), config.flows.len()), (1, 1));
    // What the reader knows, it names where a key is unknown.
    for (table, head) in [
        ("agent", "[agent]\n"),
        ("interface", "[[interface]]\n"),
        ("flow", "[[flow]]\n"),
        ("rtp_profile", "[rtp_profile]\n"),
        ("media.conf", "[media.conf]\n"),
        ("peer", "[[peer]]\n"),
        ("tcp_real", "[tcp_real]\n"),
        ("", ""),
    ] {
        let errors = Config::parse(&format!("{head}qqqqqqqq = 1\n"), "f").unwrap_err();
        let hint = errors
            .iter()
            .find_map(|e| e.hint.strip_prefix("known here: "));
        let section = PACKAGED.split("\n#[").find(|s| {
            let s = s.trim_start_matches('[');
            s.starts_with(&format!("{table}]"))
        });
        for key in hint.expect(table).split(", ") {
            let shown = match section {
                Some(section) => section
                    .lines()
                    .any(|l| l.trim_start_matches('#').starts_with(&format!("{key} = "))),
                None => false,
            } || PACKAGED.contains(&format!("[{table}.{key}]"))
                || (table.is_empty()
                    && ["]", "."]
                        .iter()
                        .any(|end| PACKAGED.contains(&format!("[{key}{end}"))));
            assert!(shown, "{table}: {key}");
        }
    }
}
