//! ffmpeg's decoder as a player has it, for the demo and for the lab: the pictures that it
//! makes of a file, and how like they are to what was filmed.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{Seek as _, Write as _},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::run;

/// Not `-v error`: a decoder has much to say about missing references. Without `-copyts` the
/// first picture that is there would stand where the first of all should.
const COMMON: &str = "-hide_banner -v fatal -nostdin -copyts";

/// Fails with what to do unless ffmpeg can encode and decode media.
pub(crate) fn check() -> Result<()> {
    let encoders = run::sh("ffmpeg -hide_banner -encoders").context(
        "real media are made, played and decoded with ffmpeg: install it (Debian: apt install \
         ffmpeg)",
    )?;
    for encoder in ["libx264", "libopus"] {
        ensure!(
            encoders.contains(encoder),
            "this ffmpeg was built without {encoder}: install the ffmpeg of your distribution"
        );
    }
    Ok(())
}

/// `video`, an IVF container, as what a program reads on its stdin.
fn stdin(video: &[u8]) -> Result<File> {
    // Without a name: it ends with the last who has it open.
    let written = tempfile::tempfile().and_then(|mut file| {
        file.write_all(video)?;
        file.rewind()?;
        Ok(file)
    });
    written.context("a file for what is decoded")
}

/// What the decoder returns of `video`, an IVF container, concealed or not: MD5 of each picture's
/// pixels by its place in time, in the container's unit.
pub(crate) fn pictures(video: &[u8]) -> Result<BTreeMap<u64, String>> {
    let mut ffmpeg = Command::new("ffmpeg");
    // One thread: with missing references the result would depend on their timing.
    ffmpeg
        .args(COMMON.split(' '))
        .args("-threads 1 -f ivf -i pipe:0".split(' '))
        .stdin(stdin(video)?)
        // The container's unit: without it ffmpeg counts in periods of the rate that it sees
        // in the first pictures, which is half the stream's where every second is missing.
        .args("-map 0:v -fps_mode passthrough -enc_time_base -1 -f framemd5 -".split(' '));
    let output = ffmpeg.output().context("starting ffmpeg to decode video")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let pictures: BTreeMap<u64, String> = text.lines().filter_map(picture).collect();
    // ffmpeg fails when nothing can be decoded: then nothing is the result.
    ensure!(
        output.status.success() || pictures.is_empty(),
        "`{}` failed ({}): {}",
        run::line(&ffmpeg),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(pictures)
}

/// Of a line of framemd5: stream, dts, pts, duration, size, MD5.
fn picture(line: &str) -> Option<(u64, String)> {
    let fields: Vec<&str> = line.split(',').map(str::trim).collect();
    match fields[..] {
        [_, _, pts, _, _, md5] => Some((pts.parse().ok()?, md5.to_owned())),
        _ => None,
    }
}

/// SSIM (Wang et al. 2004) of the luma of each of the `count` pictures of `source`, a
/// filter of ffmpeg, to the picture of `video` that a player shows in its place: the newest
/// one decoded by then. There is none, and no entry, before the first.
pub(crate) fn likeness(source: &str, count: u64, video: &[u8]) -> Result<BTreeMap<u64, f64>> {
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg
        .args(COMMON.split(' '))
        .args(["-f", "lavfi", "-i"])
        .arg(format!("{source},trim=end_frame={count}"))
        .args("-threads 1 -f ivf -i pipe:0".split(' '))
        .stdin(stdin(video)?)
        // The source leads, and ends it; a stream that is over stays at its last picture.
        .args(["-lavfi", "[0:v][1:v]ssim=stats_file=-"])
        .args(["-f", "null", "/dev/null"]);
    let text = run::output(&mut ffmpeg).context("comparing pictures")?;
    let values: Vec<f64> = text.lines().filter_map(luma).collect();
    let compared = values.len() as u64;
    ensure!(
        (1..=count).contains(&compared),
        "`{}` compared {compared} of {count} pictures",
        run::line(&ffmpeg)
    );
    // Pictures before the first decoded one have no line: the lines are the last ones.
    Ok((count - compared..).zip(values).collect())
}

/// `Y:` of a line `n:1 Y:0.98 U:0.98 V:0.98 All:0.98 (17.1)`.
fn luma(line: &str) -> Option<f64> {
    let field = line.split_whitespace().find_map(|f| f.strip_prefix("Y:"))?;
    field.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoder_lines_of_ffmpeg_are_read() {
        for (line, expected) in [
            ("0,  16,  16,  1,  86400, 2ad81a98", Some((16, "2ad81a98"))),
            ("0, 0, -9223372036854775808, 1, 345600, 4567def", None),
            ("#stream#, dts, pts, duration, size, hash", None),
        ] {
            let expected = expected.map(|(at, md5)| (at, md5.to_owned()));
            assert_eq!(picture(line), expected);
        }
        let line = "n:2 Y:0.617134 U:0.742409 V:0.799699 All:0.668441 (4.794388)";
        assert_eq!((luma(line), luma("")), (Some(0.617134), None));
    }
}
