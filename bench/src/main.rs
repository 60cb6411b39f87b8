//! `bestby-lab`: see `bestby-lab --help`.

fn main() -> anyhow::Result<()> {
    bestby_lab::cleanup::on_signals()?;
    anyhow::bail!("no scenario yet")
}
