//! The configuration file: one that the operator named must be there; the standard one may be missing, which
//! means that nothing is in it, and saving makes it.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use bestby_api::{Config, ConfigError, DEFAULT_CONFIG, Document};

use crate::error::{Error, Result, Tried as _};

/// Where the configuration is.
#[derive(Debug, Clone)]
pub struct ConfigFile {
    path: PathBuf,
    required: bool,
}

impl ConfigFile {
    /// The one that the operator named, else [`DEFAULT_CONFIG`].
    pub fn new(named: Option<PathBuf>) -> Self {
        Self {
            required: named.is_some(),
            path: named.unwrap_or_else(|| DEFAULT_CONFIG.into()),
        }
    }

    /// Where it is, or would be.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is in it.
    ///
    /// # Errors
    /// Everything wrong in it, one line each; a named one that is missing.
    pub fn read(&self) -> Result<Config> {
        let text = self.text(self.required)?;
        Config::parse(&text, &self.path.display().to_string()).map_err(|e| config_error(&e))
    }

    /// The file as it is now, to be changed; empty where there is none (any more).
    ///
    /// # Errors
    /// It cannot be read, or is not valid as it is.
    pub(crate) fn document(&self) -> Result<Document> {
        let text = self.text(false)?;
        Document::parse(&text, &self.path.display().to_string()).map_err(|e| {
            config_error(&e).within("the file was not changed, because it is not valid as it is")
        })
    }

    /// Replaces it, or makes it.
    ///
    /// # Errors
    /// No space, no rights: the old file is untouched.
    pub(crate) fn write(&self, text: &str) -> Result<()> {
        write_atomically(&self.path, text)
    }

    fn text(&self, required: bool) -> Result<String> {
        // Another kind of file (a FIFO) might never end, and the data path would wait for it.
        if std::fs::metadata(&self.path).is_ok_and(|m| !m.is_file()) {
            let path = self.path.display();
            let what = format!("reading {path}: it is no regular file");
            return Err(Error::invalid(what).hint("name one, or leave --config out"));
        }
        match std::fs::read_to_string(&self.path) {
            Err(e) if e.kind() == ErrorKind::NotFound && !required => Ok(String::new()),
            other => other.tried(|| format!("reading {}", self.path.display())),
        }
    }
}

pub(crate) fn config_error(errors: &[ConfigError]) -> Error {
    let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
    Error::invalid(lines.join("\n"))
}

/// Writes a file so that at every moment either the old or the new text is there.
///
/// # Errors
/// No space, no rights: the old file is untouched.
fn write_atomically(path: &Path, text: &str) -> Result<()> {
    let what = || format!("saving to {}", path.display());
    // A link stays a link: its target is replaced.
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let dir = path
        .parent()
        .filter(|p| !p.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let fresh = dir.join(format!(".{name}.{}", std::process::id()));
    let write = || -> std::io::Result<()> {
        // The standard file's directory may not be there yet.
        std::fs::create_dir_all(dir)?;
        let mut file = std::fs::File::create(&fresh)?;
        if let Ok(old) = std::fs::metadata(&path) {
            file.set_permissions(old.permissions())?;
        }
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&fresh, &path)?;
        // The rename itself must survive a power failure, too.
        std::fs::File::open(dir)?.sync_all()
    };
    write()
        .inspect_err(|_| drop(std::fs::remove_file(&fresh)))
        .tried(what)
}
