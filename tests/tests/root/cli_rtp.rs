//! Rules about RTP: what the command accepts reaches the kernel's maps, and `explain` finds it there.

use crate::cli_lab::{Lab, lab, text};

const PROFILE: &str = "[rtp_profile]\naudio = [111]\nvideo = [96, 98]\n";

/// The rule that the kernel's maps name for a packet.
fn rule(lab: &Lab, rtp: &str) -> String {
    let asked = format!("explain v0 udp 10.9.0.1:5004 to 10.9.0.2:6000 {rtp}");
    lab.json(&asked)["flow"].as_str().unwrap().to_string()
}

#[test]
fn rtp_streams_of_one_port_match_rules_of_their_own() {
    lab(PROFILE, |lab| {
        lab.ok("flow add screen --ssrc 0x12345678 --lifetime 600ms");
        lab.ok("flow add audio --proto udp --rtp-kind audio --lifetime 200ms --priority 0");
        lab.ok("flow add video --rtp-pt 96,98 --rtx 97:96 --rtx 99:98 --lifetime 400ms");
        lab.ok("flow add tones --rtp-pt 101 --frames none --lifetime 400ms");
        for (rtp, name) in [
            ("rtp 111 ssrc 1", "audio"),
            ("rtp 0 ssrc 1", "audio"),
            ("rtp 96 ssrc 1", "video"),
            ("rtp 99 ssrc 1", "video"),
            ("payload 80650001000000a000000009", "tones"),
            ("rtp 96 ssrc 0x12345678", "screen"),
            ("rtp 100 ssrc 1", "-"),
            ("", "-"),
        ] {
            assert_eq!(rule(lab, rtp), name, "{rtp}");
        }
        let shown = lab.ok("flow ls");
        assert!(
            shown.contains("rtp_pt 96,98 rtx 97:96,99:98") && shown.contains("ssrc 0x12345678"),
            "{shown}"
        );
        lab.ok("flow set video --rtp-pt 102 --rtx none");
        assert_eq!(rule(lab, "rtp 96 ssrc 1"), "-");
        assert_eq!(rule(lab, "rtp 102 ssrc 1"), "video");
    });
}

#[test]
fn contradicting_rtp_options_are_refused() {
    lab("", |lab| {
        for (line, why) in [
            ("--rtp-pt 111 --proto tcp", "UDP"),
            ("--rtp-pt 111 --rtp-kind audio", "rtp_kind"),
            ("--ssrc 1 --rtx 97:96", "SSRC"),
            ("--rtp-pt 96 --rtx 99:98", "98"),
            ("--rtx 97 --rtx 97", "twice"),
        ] {
            let line = format!("flow add a --lifetime 1s {line}");
            let output = lab.bestby(&line.split(' ').collect::<Vec<_>>());
            assert!(!output.status.success(), "{line}");
            let said = text(&output.stderr);
            assert!(said.contains(why), "{line}: {said}");
        }
        assert_eq!(lab.json("flow ls"), serde_json::json!([]));
        // Without a profile only the static payload types are known.
        lab.ok("flow add audio --rtp-kind audio --lifetime 1s");
        assert_eq!(rule(lab, "rtp 111 ssrc 1"), "-");
        assert_eq!(rule(lab, "rtp 0 ssrc 1"), "audio");
    });
}

#[test]
fn options_of_pictures_are_kept_by_commands_and_by_the_file() {
    lab("", |lab| {
        lab.ok("flow add film --proto udp --dport 6000 --lifetime 1s --chain skip --roles 2,4,4,5,7 --save");
        lab.ok("flow add radar --proto udp --dport 6002 --lifetime 1s --media off --save");
        let ls = lab.ok("flow ls");
        assert!(
            ls.contains("2,4,4,5,7") && ls.contains("skip") && ls.contains("off"),
            "{ls}"
        );
        let listed = lab.json("flow ls");
        assert_eq!(listed[0]["flow"]["roles"], "2,4,4,5,7");
        assert_eq!(listed[1]["flow"]["media"], "off");
        assert!(listed[1]["flow"].get("chain").is_none(), "{listed}");
        let file = std::fs::read_to_string(lab.path("bestby.toml")).unwrap();
        assert!(
            file.contains("roles = \"2,4,4,5,7\"") && file.contains("media = \"off\""),
            "{file}"
        );
        let explained = lab.ok("explain v0 udp 10.9.0.1:5004 to 10.9.0.2:6000 rtp 96");
        let says = "flow rule \"film\": lifetime 1s, chain skip, roles 2,4,4,5,7";
        assert!(explained.contains(says), "{explained}");
        // What a command says and the file does not.
        lab.ok("flow set film --chain auto --roles none");
        let diff = lab.ok("config diff");
        assert_eq!(diff.trim(), "change flow rule \"film\"");
        lab.ok("reload");
        assert_eq!(lab.json("flow show film")["flow"]["chain"], "skip");
        // After a new start all of it is in force.
        lab.stop();
        lab.start();
        assert_eq!(lab.json("flow show film")["flow"]["roles"], "2,4,4,5,7");
        assert!(lab.ok("config diff").contains("changes nothing"));
    });
}

#[test]
fn options_of_pictures_that_contradict_each_other_are_refused() {
    lab("", |lab| {
        lab.ok("flow add film --lifetime 1s --roles 3,4,5,6,7");
        for (line, why) in [
            ("flow add a --lifetime 1s --roles 3,4,5", "five priorities"),
            (
                "flow add a --lifetime 1s --roles 7,6,5,4,3",
                "which they need",
            ),
            (
                "flow add a --lifetime 1s --roles 3,4,5,6,7 --priority 1",
                "leave one of them out",
            ),
            (
                "flow add a --lifetime 1s --chain skip --media off",
                "leave one of them out",
            ),
            ("flow add a --lifetime 1s --chain skip --proto tcp", "UDP"),
            ("flow set film --media off", "gives roles and media off"),
            ("flow set film --priority 2", "gives priority 2 and roles"),
        ] {
            let output = lab.bestby(&line.split(' ').collect::<Vec<_>>());
            assert!(!output.status.success(), "{line}");
            let said = text(&output.stderr);
            assert!(said.contains(why), "{line}: {said}");
        }
        // Nothing of it came into force.
        let all = lab.json("flow ls");
        assert_eq!(
            (all.as_array().unwrap().len(), &all[0]["flow"]["roles"]),
            (1, &"3,4,5,6,7".into())
        );
    });
}
