//! Contradictions in a rule whose fields are each valid.

use super::FlowRule;
use crate::{Chain, FlowLifetime, Frames, Media, Proto, Stamp, Treatment};

impl FlowRule {
    /// Contradictions between fields that are each valid.
    ///
    /// # Errors
    /// Says which fields do not go together.
    pub fn check(&self) -> Result<(), String> {
        if self.lifetime.is_none() && self.priority.is_none() && self.roles.is_none() {
            return Err(format!(
                "flow rule \"{}\" gives neither a lifetime nor a priority nor roles, so it would change nothing",
                self.name
            ));
        }
        if let (Some(src), Some(dst)) = (self.src, self.dst)
            && src.addr().is_ipv4() != dst.addr().is_ipv4()
        {
            return Err(format!(
                "flow rule \"{}\" can never match: src {src} and dst {dst} are of different IP versions",
                self.name
            ));
        }
        self.check_rto()
            .and_then(|()| self.check_rtp())
            .and_then(|()| self.check_pictures())
            .map_err(|problem| format!("flow rule \"{}\" {problem}", self.name))
    }

    /// The part of [`Self::check`] about retransmission timeouts.
    fn check_rto(&self) -> Result<(), String> {
        if self.lifetime != Some(FlowLifetime::Rto) {
            return Ok(());
        }
        if self.proto != Some(Proto::Tcp) {
            return Err("gives lifetime rto without proto tcp: others have no such timeout".into());
        }
        if matches!(self.stamp, None | Some(Stamp::No)) {
            return Err(
                "gives lifetime rto without stamp yes or probed: it is for the last hop, as TCP is not dropped here"
                    .into(),
            );
        }
        Ok(())
    }

    /// The part of [`Self::check`] that RTP needs.
    fn check_rtp(&self) -> Result<(), String> {
        let compared = [
            ("rtp_pt", self.rtp_pt.is_some()),
            ("rtp_kind", self.rtp_kind.is_some()),
            ("ssrc", self.ssrc.is_some()),
            ("rtx", self.rtx.is_some()),
            ("frames", self.frames.is_some()),
            ("media", self.media.is_some()),
            ("chain", self.chain.is_some()),
            ("roles", self.roles.is_some()),
        ];
        if self.proto == Some(Proto::Tcp)
            && let Some((field, _)) = compared.iter().find(|(_, given)| *given)
        {
            return Err(format!(
                "gives {field} and proto tcp: RTP is looked for in UDP packets only"
            ));
        }
        if self.rtp_pt.is_some() && self.rtp_kind.is_some() {
            return Err("gives rtp_pt and rtp_kind: give one of them".into());
        }
        let Some(rtx) = &self.rtx else { return Ok(()) };
        if self.ssrc.is_some() {
            return Err(
                "gives rtx and ssrc: retransmissions have an SSRC of their own (RFC 4588)".into(),
            );
        }
        if let Some(types) = self.rtp_pt
            && let Some((rtx, original)) = rtx
                .pairs()
                .iter()
                .filter_map(|(rtx, original)| Some((rtx, (*original)?)))
                .find(|(_, original)| !types.contains(*original))
        {
            return Err(format!(
                "gives rtx {rtx}:{original}, but rtp_pt {types} does not match payload type {original}"
            ));
        }
        Ok(())
    }

    /// The part of [`Self::check`] about what frames are for. An option that could do nothing is a mistake.
    fn check_pictures(&self) -> Result<(), String> {
        let chain = self.chain.filter(|chain| *chain != Chain::Auto);
        let given = [("roles", self.roles.is_some()), ("chain", chain.is_some())];
        let Some((field, _)) = given.iter().find(|(_, given)| *given) else {
            return Ok(());
        };
        if self.media == Some(Media::Off) {
            return Err(format!(
                "gives {field} and media off: what its frames are for is then not known; leave one of them out"
            ));
        }
        if self.frames == Some(Frames::None) {
            return Err(format!(
                "gives {field} and frames none: then it has no frames; leave one of them out"
            ));
        }
        if let (Some(_), Some(priority)) = (self.roles, self.priority) {
            return Err(format!(
                "gives priority {priority} and roles: each frame would have that priority; leave one of them out"
            ));
        }
        if let (Some(Chain::Skip), Some(treatment @ (Treatment::Forward | Treatment::Truncate))) =
            (chain, self.treatment)
        {
            return Err(format!(
                "gives chain skip and treatment {treatment}: chains break only where stale packets are dropped; \
                 leave one of them out"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(json: &str) -> FlowRule {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn retransmission_timeout_needs_tcp_and_a_stamp() {
        let check =
            |fields: &str| rule(&format!(r#"{{"name":"a","lifetime":"rto"{fields}}}"#)).check();
        assert_eq!(check(r#","proto":"tcp","stamp":"yes""#), Ok(()));
        for (fields, why) in [
            (r#","stamp":"yes""#, "proto tcp"),
            (r#","proto":"udp","stamp":"yes""#, "proto tcp"),
            (r#","proto":"tcp""#, "stamp yes"),
            (r#","proto":"tcp","stamp":"no""#, "stamp yes"),
        ] {
            let error = check(fields).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert_eq!(check(r#","proto":"tcp","stamp":"probed""#), Ok(()));
        assert!(serde_json::from_str::<FlowRule>(r#"{"name":"a","stamp":"maybe"}"#).is_err());
    }

    #[test]
    fn addresses_of_different_ip_versions_are_refused() {
        let r = rule(r#"{"name":"a","src":"10.0.0.0/8","dst":"2001:db8::/32","lifetime":"1s"}"#);
        assert!(r.check().unwrap_err().contains("versions"));
    }

    #[test]
    fn rtp_fields_that_contradict_each_other_are_refused() {
        for (json, why) in [
            (r#""proto":"tcp","rtp_pt":111"#, "rtp_pt"),
            (r#""proto":"tcp","frames":"none""#, "frames"),
            (r#""rtp_pt":111,"rtp_kind":"audio""#, "rtp_kind"),
            (r#""ssrc":7,"rtx":"97:96""#, "SSRC"),
            (r#""rtp_pt":111,"rtx":"97:96""#, "96"),
            (r#""rtp_pt":98,"rtx":"99:98,97:96""#, "96"),
        ] {
            let error = rule(&format!(r#"{{"name":"a","lifetime":"1s",{json}}}"#))
                .check()
                .unwrap_err();
            assert!(
                error.contains(why) && error.contains("\"a\""),
                "{json}: {error}"
            );
        }
        for json in [
            r#""rtp_pt":"96,98","rtx":"97:96,99""#,
            r#""ssrc":7,"rtp_kind":"video""#,
            r#""rtx":"97:96""#,
        ] {
            rule(&format!(r#"{{"name":"a","lifetime":"1s",{json}}}"#))
                .check()
                .unwrap();
        }
    }

    #[test]
    fn options_of_pictures_that_could_do_nothing_are_refused() {
        let check = |json: &str| rule(&format!(r#"{{"name":"a",{json}}}"#)).check();
        for (json, why) in [
            (r#""roles":"3,4,5,6,7","media":"off""#, "media off"),
            (
                r#""lifetime":"1s","chain":"skip","media":"off""#,
                "media off",
            ),
            (
                r#""lifetime":"1s","chain":"off","media":"off""#,
                "media off",
            ),
            (r#""roles":"3,4,5,6,7","frames":"none""#, "frames none"),
            (r#""roles":"3,4,5,6,7","priority":2"#, "priority 2"),
            (
                r#""lifetime":"1s","chain":"skip","treatment":"forward""#,
                "treatment forward",
            ),
            (r#""roles":"3,4,5,6,7","proto":"tcp""#, "UDP"),
            (
                r#""lifetime":"1s","media":"off","proto":"tcp""#,
                "media and proto tcp",
            ),
            (
                r#""lifetime":"1s","chain":"off","proto":"tcp""#,
                "chain and proto tcp",
            ),
            (r#""chain":"off""#, "neither"),
        ] {
            let error = check(json).unwrap_err();
            assert!(
                error.contains(why) && error.contains("\"a\""),
                "{json}: {error}"
            );
        }
        for json in [
            r#""roles":"3,4,5,6,7""#,
            r#""roles":"0,0,0,0,0","media":"auto","chain":"skip","treatment":"discard""#,
            r#""lifetime":"1s","media":"off","chain":"auto","priority":1"#,
            r#""lifetime":"1s","chain":"off","treatment":"forward""#,
        ] {
            assert_eq!(check(json), Ok(()), "{json}");
        }
    }
}
