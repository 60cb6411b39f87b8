//! Commands of the system (`ip`, `tc`, `bestby`), with their words in the error.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// Runs `command` to its end and returns what it printed on stdout. An exit
/// status other than 0 is an error that carries the command line and stderr.
pub fn output(command: &mut Command) -> Result<String> {
    let line = line(command);
    let output = command
        .output()
        .with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        bail!(
            "`{line}` failed ({}): {}{}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim(),
            String::from_utf8_lossy(&output.stdout).trim(),
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a command line of words separated by blanks, e.g. `ip link add ...`.
pub fn sh(words: &str) -> Result<String> {
    output(&mut command(words))
}

/// The words of `words` as a command; no quoting, no shell.
pub fn command(words: &str) -> Command {
    let mut parts = words.split_whitespace();
    let mut command = Command::new(parts.next().unwrap_or("true"));
    command.args(parts);
    command
}

/// The command as a person would type it.
pub fn line(command: &Command) -> String {
    let mut line = command.get_program().to_string_lossy().into_owned();
    for arg in command.get_args() {
        line.push(' ');
        line.push_str(&arg.to_string_lossy());
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sh_of_a_failing_command_names_it_and_its_words() {
        let error = sh("ls /there/is/no/such/file")
            .expect_err("must fail")
            .to_string();
        assert!(error.contains("ls /there/is/no/such/file"), "{error}");
        assert!(error.contains("No such file"), "{error}");
    }
}
