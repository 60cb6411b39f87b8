//! Reading `[media.NAME]` tables, and whether those are there that rules name.

use toml::de::DeValue;

use super::{Reader, Table};
use crate::extensions::MAX_MEDIA;
use crate::value::ValueError;
use crate::{Config, MediaName, MediaTable, MediaTables};

impl<'t> Reader<'t> {
    pub(super) fn media(&'t self, t: &Table<'t>) -> MediaTables {
        let mut tables = MediaTables::new();
        if t.entries.len() > MAX_MEDIA {
            let message = format!("{}: more than {MAX_MEDIA} tables", t.name);
            self.error(&t.span, message, "rules may share one");
        }
        for (key, value) in t.entries.iter() {
            let name: &str = key.get_ref();
            let named = name.parse().map_err(|e: ValueError| e.full());
            let named = match named.and_then(MediaName::for_table) {
                Ok(named) => named,
                Err(problem) => {
                    self.error(&key.span(), format!("{}: {problem}", t.name), "");
                    continue;
                }
            };
            let DeValue::Table(entries) = value.get_ref() else {
                let hint = format!("write [media.{named}] on a line of its own");
                t.error(&value.span(), named.as_str(), "is not a table", &hint);
                continue;
            };
            let before = self.errors.borrow().len();
            let table = self.table(&format!("[media.{named}]"), value.span(), entries);
            let ids = MediaTable {
                profile: table.value("profile"),
                dd: table.value("dd"),
                vfm: table.value("vfm"),
            };
            table.finish();
            if self.errors.borrow().len() == before
                && let Err(message) = ids.check()
            {
                self.error(&table.span, format!("{}: {message}", table.name), "");
            }
            tables.insert(named, ids);
        }
        tables
    }

    /// Refuses rules that name a table which is not there.
    pub(super) fn known_media(&self, config: &Config, flows: &[Table<'t>]) {
        // A table with an error in it is not there, and one error is enough.
        if self.errors.borrow().is_empty() {
            for (rule, table) in config.flows.iter().zip(flows) {
                let media = rule.media.as_ref();
                if let Some((what, hint)) = media.and_then(|m| m.unknown(&config.media)) {
                    table.error(&table.span, "media", &what, &hint);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Document, ExtensionId};

    #[test]
    fn media_tables_are_read_named_by_rules_and_written() {
        let text = "[media.conf]\nprofile = \"jitsi\"\ndd = 3 # ours\n[[flow]]\nname = \"v\"\nlifetime = \"1s\"\nmedia = \"conf\"\n";
        let config = Config::parse(text, "f").unwrap();
        assert_eq!(Config::parse(&config.to_toml(), "f").unwrap(), config);
        for (from, to, line, says) in [
            ("= \"conf\"", "= \"other\"", 4, "no table [media.other]"),
            ("[media.conf]", "[media.chrome]", 1, "name of a profile"),
            ("[media.conf]", "[media.off]", 1, "has a meaning"),
            ("dd = 3", "dd = 15", 3, "extension id \"15\""),
            ("dd = 3", "dd = 9", 1, "same id 9"),
            ("dd = 3", "ddd = 3", 3, "did you mean dd?"),
            ("\"jitsi\"", "\"jisti\"", 2, "unknown"),
        ] {
            let errors = Config::parse(&text.replace(from, to), "f").unwrap_err();
            let error = errors.iter().find(|e| e.to_string().contains(says));
            assert_eq!(error.map(|e| e.line), Some(line), "{to}: {errors:?}");
        }
        let name = "conf".parse().unwrap();
        for text in [
            text,
            "media = { conf = { profile = \"jitsi\", dd = 3 } }\n",
            "",
            "# mine\n",
        ] {
            let mut document = Document::parse(text, "f").unwrap();
            let table = MediaTable {
                profile: None,
                dd: ExtensionId::new(4),
                vfm: None,
            };
            document.put_media(&name, table).unwrap();
            assert_eq!(document.config().media[&name], table);
            let kept = ["# ours", "# mine"];
            assert!(
                kept.iter()
                    .all(|c| text.contains(c) == document.text().contains(c))
            );
        }
    }
}
