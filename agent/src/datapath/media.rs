//! Ids of RTP's header extensions: `[media.NAME]` tables, which only the file has. A command that learns one writes it
//! there.

use bestby_api::{Done, FlowRule, MediaName, MediaTable};

use crate::datapath::Datapath;
use crate::desired::file::config_error;
use crate::error::{Error, Result};

impl Datapath {
    /// Whether what a rule names is there.
    ///
    /// # Errors
    /// It is not; names what is.
    pub(super) fn knows_media(&self, rule: &FlowRule) -> Result<()> {
        let media = rule.media.as_ref();
        match media.and_then(|m| m.unknown(&self.media_tables)) {
            None => Ok(()),
            Some((what, known)) => {
                let what = format!("flow rule \"{}\": {what}", rule.name);
                Err(Error::invalid(what).hint(known))
            }
        }
    }

    /// Rules of commands that name a table which the file does not have any more.
    pub(super) fn unknown_media(&self) -> Vec<String> {
        let rules = self.book.entries.iter().map(|e| &e.rule);
        let unknown = rules.filter_map(|rule| {
            let (what, _) = rule.media.as_ref()?.unknown(&self.media_tables)?;
            Some(format!(
                "flow rule \"{}\": {what}: header extensions are found by their shape",
                rule.name
            ))
        });
        unknown.collect()
    }

    /// PUT /v1/media/{name}: in the file and in force, or neither.
    ///
    /// # Errors
    /// The table says nothing, its name is that of a profile, or the file cannot be written.
    pub fn media_set(&mut self, name: MediaName, table: MediaTable) -> Result<Done> {
        let name = name.for_table().map_err(Error::invalid)?;
        table
            .check()
            .map_err(|why| Error::invalid(format!("[media.{name}] {why}")))?;
        let mut document = self.paths.config.document()?;
        document
            .put_media(&name, table)
            .map_err(|e| config_error(&e))?;
        let before = self.media_tables.insert(name.clone(), table);
        let entries = self.book.entries.clone();
        let done = self
            .put_rules(entries.clone())
            .and_then(|()| self.paths.config.write(&document.text()));
        if let Err(e) = done {
            match before {
                Some(before) => self.media_tables.insert(name, before),
                None => self.media_tables.remove(&name),
            };
            self.put_rules(entries)?;
            return Err(e
                .within("nothing was changed")
                .hint("free some space or check the rights, or leave out --save"));
        }
        self.config.media.clone_from(&document.config().media);
        Ok(Done {
            message: format!("[media.{name}] is in the file and in force for streams that begin"),
            warnings: Vec::new(),
        })
    }
}
