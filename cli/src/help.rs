//! The command line as it is used: short forms as in `ip` and `tc`, examples in every help, completions, man pages.
//!
//! All of it is put onto what the nouns declare, so that a new verb needs a line in [`EXAMPLES`] and no more.

use std::path::Path;
use std::process::ExitCode;

use clap::{Command, CommandFactory as _, ValueEnum as _};
use clap_complete::Shell;

use crate::args::Args;
use crate::failure::Failure;

/// Other names of a verb: those of `ip` and `tc`.
const ALIASES: &[(&str, &[&str])] = &[
    ("ls", &["list"]),
    ("rm", &["delete", "remove"]),
    ("set", &["change"]),
];

/// Examples by command; each is run through the parser by a test.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "bestby iface attach eth0 --rate 10mbit --observe",
            "bestby flow add audio --proto udp --dport 5004 --lifetime 200ms --priority 0",
            "bestby top",
        ],
    ),
    (
        "iface",
        &["bestby iface attach eth0 --rate 10mbit", "bestby iface ls"],
    ),
    (
        "iface attach",
        &[
            "bestby iface attach eth0 --rate 10mbit --observe",
            "bestby iface attach eth0 --rate 10mbit --enforce --session prefix/24",
        ],
    ),
    (
        "iface set",
        &[
            "bestby iface set eth0 --rate 12mbit --save",
            "bestby iface set eth0 --enforce",
        ],
    ),
    ("iface detach", &["bestby iface detach eth0"]),
    ("iface upgrade", &["bestby iface upgrade eth0"]),
    ("iface ls", &["bestby iface ls", "bestby --json iface ls"]),
    (
        "flow",
        &[
            "bestby flow add audio --dport 5004 --lifetime 200ms",
            "bestby flow ls",
        ],
    ),
    (
        "flow add",
        &[
            "bestby flow add audio --proto udp --dport 5004 --lifetime 200ms --priority 0 --save",
            "bestby flow add video --rtp-kind video --lifetime 300ms --before audio",
        ],
    ),
    (
        "flow set",
        &["bestby flow set audio --lifetime 150ms --dport none"],
    ),
    ("flow rm", &["bestby flow rm audio --save"]),
    ("flow ls", &["bestby flow ls"]),
    ("flow show", &["bestby flow show audio"]),
    (
        "session",
        &[
            "bestby session ls",
            "bestby session set 10.0.0.2 --owd 40ms",
        ],
    ),
    ("session ls", &["bestby session ls"]),
    (
        "media",
        &["bestby media ls", "bestby media learn conf --sdp offer.sdp"],
    ),
    (
        "media learn",
        &[
            "bestby media learn conf --sdp offer.sdp",
            "bestby media learn conf --sdp offer.sdp --save",
        ],
    ),
    ("media ls", &["bestby media ls", "bestby --json media ls"]),
    (
        "session set",
        &[
            "bestby session set 10.0.0.2 --rate 2mbit --owd 40ms",
            "bestby session set 10.0.0.2 --owd none",
        ],
    ),
    (
        "tcp-real",
        &[
            "bestby tcp-real on --cgroup /media.slice",
            "bestby tcp-real ls",
        ],
    ),
    (
        "tcp-real on",
        &["bestby tcp-real on --cgroup /media.slice --mode guarded"],
    ),
    ("tcp-real off", &["bestby tcp-real off"]),
    ("tcp-real ls", &["bestby tcp-real ls"]),
    (
        "stats",
        &[
            "bestby stats",
            "bestby stats audio",
            "bestby stats --sort dropped --top 10",
        ],
    ),
    (
        "top",
        &[
            "bestby top",
            "bestby top --sort would-drop --filter eth0/",
            "bestby top --count 60 --top 5",
        ],
    ),
    ("status", &["bestby status"]),
    ("reload", &["bestby reload"]),
    (
        "events",
        &[
            "bestby events",
            "bestby events --flow audio --reason stale",
            "bestby --json events --session eth0/10.0.0.2 --count 100",
        ],
    ),
    (
        "discover",
        &[
            "bestby discover",
            "bestby discover eth0 --seconds 30",
            "bestby discover eth0 --save",
        ],
    ),
    ("doctor", &["bestby doctor", "bestby --json doctor"]),
    (
        "explain",
        &[
            "bestby explain eth0 udp 10.0.0.1:5004 to 10.0.0.2:6000 dscp ef",
            "bestby explain eth0 udp 10.0.0.2:6000 rtp 111",
        ],
    ),
    (
        "probe",
        &[
            "bestby probe 10.0.0.2",
            "bestby probe receiver.example --port 5004",
        ],
    ),
    ("config", &["bestby config check /etc/bestby/bestby.toml"]),
    (
        "config check",
        &["bestby config check /etc/bestby/bestby.toml"],
    ),
    ("config diff", &["bestby config diff"]),
    (
        "report",
        &[
            "bestby report",
            "bestby report --hide-addresses for-the-issue.txt",
        ],
    ),
    ("completions", &["bestby completions bash"]),
    ("man-pages", &["bestby man-pages /usr/share/man/man1"]),
];

/// The command line with all of this.
pub(crate) fn command() -> Command {
    shaped(Args::command(), "")
}

/// `at`: the command's words behind `bestby`, as in [`EXAMPLES`].
fn shaped(command: Command, at: &str) -> Command {
    let mut command = command.infer_subcommands(true);
    if let Some(examples) = examples(at) {
        command = command.after_help(format!("Examples:\n  {}", examples.join("\n  ")));
    }
    let names: Vec<String> = command
        .get_subcommands()
        .map(|c| c.get_name().to_string())
        .collect();
    for name in &names {
        let at = format!("{at} {name}");
        // `flow show` shows one; where nothing has that name, it lists.
        let show = name == "ls" && !names.iter().any(|n| n == "show");
        command = command.mut_subcommand(name, |mut c| {
            let own = ALIASES.iter().find(|(of, _)| of == name);
            c = c.visible_aliases(own.map_or(&[][..], |(_, all)| *all));
            if show {
                c = c.visible_alias("show");
            }
            shaped(c, at.trim())
        });
    }
    command
}

fn examples(at: &str) -> Option<&'static [&'static str]> {
    EXAMPLES.iter().find(|(c, _)| *c == at).map(|(_, all)| *all)
}

/// For files: `bestby help X` would be one more page for each.
fn for_files() -> Command {
    command().disable_help_subcommand(true)
}

/// Prints a shell's completions.
pub(crate) fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut for_files(), "bestby", &mut text);
    std::io::Write::write_all(&mut std::io::stdout(), &text).map_err(|e| Failure::output(&e))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes a page for each command, and the completions of each shell beside them if asked.
pub(crate) fn man_pages(dir: &Path, completions: Option<&Path>) -> Result<ExitCode, Failure> {
    let failed = |dir: &Path| {
        let shown = dir.display().to_string();
        move |e: std::io::Error| Failure::new(format!("cannot write to {shown}: {e}"), "")
    };
    std::fs::create_dir_all(dir).map_err(failed(dir))?;
    clap_mangen::generate_to(for_files(), dir).map_err(failed(dir))?;
    if let Some(dir) = completions {
        std::fs::create_dir_all(dir).map_err(failed(dir))?;
        for shell in Shell::value_variants() {
            clap_complete::generate_to(*shell, &mut for_files(), "bestby", dir)
                .map_err(failed(dir))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command with its words behind `bestby`.
    fn all(command: &Command, at: &str, found: &mut Vec<(String, Command)>) {
        found.push((at.to_string(), command.clone()));
        for sub in command.get_subcommands() {
            all(sub, format!("{at} {}", sub.get_name()).trim(), found);
        }
    }

    #[test]
    fn help_of_each_command_has_an_example_that_is_its_own() {
        let mut found = Vec::new();
        all(&command(), "", &mut found);
        for (at, command) in &mut found {
            let help = command.render_long_help().to_string();
            let examples = examples(at).unwrap_or_else(|| panic!("{at}: no example"));
            for example in examples {
                assert!(help.contains(example), "{at}: {help}");
                let words = format!("bestby {at}");
                let plain = example.replace("--json ", "");
                assert!(plain.starts_with(words.trim()), "{at}: {example}");
            }
        }
        let known = |at: &&str| found.iter().any(|(f, _)| f == at);
        let strangers: Vec<_> = EXAMPLES
            .iter()
            .map(|e| e.0)
            .filter(|at| !known(at))
            .collect();
        assert!(strangers.is_empty(), "{strangers:?}");
    }

    #[test]
    fn each_example_is_parsed() {
        for example in EXAMPLES.iter().flat_map(|(_, all)| *all) {
            if let Err(e) = command().try_get_matches_from(example.split(' ')) {
                panic!("{example}: {e}");
            }
        }
    }

    #[test]
    fn short_form_is_understood_and_an_ambiguous_one_refused() {
        for (short, long) in [
            ("i l", "iface ls"),
            ("iface list", "iface ls"),
            ("iface show", "iface ls"),
            ("f sh audio", "flow show audio"),
            ("flow del audio", "flow rm audio"),
            ("f a x --lifetime 1s", "flow add x --lifetime 1s"),
            ("sess show", "session ls"),
            ("flow change a --lifetime 1s", "flow set a --lifetime 1s"),
            ("tcp l", "tcp-real ls"),
            ("doc", "doctor"),
            ("ev", "events"),
        ] {
            let of = |line: &str| {
                let words = std::iter::once("bestby").chain(line.split(' '));
                let matches = command().try_get_matches_from(words);
                matches.unwrap_or_else(|e| panic!("{line}: {e}"))
            };
            let (mut a, mut b) = (&of(short), &of(long));
            while let (Some((x, m)), Some((y, n))) = (a.subcommand(), b.subcommand()) {
                assert_eq!(x, y, "{short}");
                (a, b) = (m, n);
            }
            assert!(a.subcommand().is_none() && b.subcommand().is_none());
        }
        for (line, says) in [
            ("bestby s", "stats"),
            ("bestby stauts", "status"),
            ("bestby flow lss", "ls"),
            ("bestby stats --sort droped", "dropped"),
        ] {
            let error = command().try_get_matches_from(line.split(' ')).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains(says), "{line}: {error}");
        }
    }

    #[test]
    fn page_and_completion_of_each_command_are_written() {
        let dir = tempfile::tempdir().unwrap();
        let (pages, shells) = (dir.path().join("man"), dir.path().join("shells"));
        man_pages(&pages, Some(&shells)).unwrap();
        let mut found = Vec::new();
        all(&command(), "bestby", &mut found);
        for (at, command) in found.iter().filter(|(_, c)| !c.is_hide_set()) {
            let page = pages.join(format!("{}.1", at.replace(' ', "-")));
            let text = std::fs::read_to_string(&page).unwrap_or_else(|e| panic!("{page:?}: {e}"));
            assert!(text.contains("Examples"), "{}", command.get_name());
        }
        assert!(!pages.join("bestby-help.1").exists());
        for shell in Shell::value_variants() {
            let mut text = Vec::new();
            clap_complete::generate(*shell, &mut for_files(), "bestby", &mut text);
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("tcp-real"), "{shell}");
        }
        assert_eq!(std::fs::read_dir(&shells).unwrap().count(), 5);
    }
}
