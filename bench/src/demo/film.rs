//! What a viewer sees: the source and what a player shows of each run, side by side, as a
//! film and as a picture of its last second.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result};

use super::Queue;
use crate::{
    run,
    traffic::media::{self, Parameters},
};

/// Makes `demo.mp4` and `demo.png` in `directory` of the streams that have pictures. A measured queue without any has a
/// dark tile with its name.
pub(super) fn make(
    parameters: &Parameters,
    seconds: u64,
    seed: u64,
    measured: &[Queue],
    streams: &[(Queue, PathBuf)],
    directory: &Path,
) -> Result<()> {
    let (width, height, fps) = (parameters.width, parameters.height, parameters.fps);
    let fps = u64::from(fps);
    let source = media::source(parameters, seed);
    let mut ffmpeg = Command::new("ffmpeg");
    // Decoders as in `decoder`; the source leads, and before a stream's first picture
    // there is nothing in its place.
    ffmpeg
        .args("-hide_banner -v fatal -nostdin -y -copyts -f lavfi -i".split(' '))
        .arg(format!("{source},trim=end_frame={}", seconds * fps));
    let mut graph = "[0:v]pad=3*iw:2*ih".to_owned();
    for (input, (queue, file)) in streams.iter().enumerate() {
        ffmpeg.args(["-threads", "1", "-f", "ivf", "-i"]).arg(file);
        let (x, y) = place(Some(*queue), width, height);
        let input = input + 1;
        graph += &format!("[under{input}];[under{input}][{input}:v]overlay={x}:{y}");
    }
    let tiles = [None].into_iter().chain(measured.iter().copied().map(Some));
    for tile in tiles {
        let name = tile.map_or("as sent", Queue::name);
        let (x, y) = place(tile, width, height);
        graph += &format!(
            ",drawtext=text='{name}':x={x}+12:y={y}+12:fontsize=24:fontcolor=white:box=1:\
             boxcolor=black@0.7:boxborderw=6"
        );
    }
    graph += &format!(
        ",split[film][rest];[rest]trim=start_frame={}[still]",
        (seconds - 1) * fps
    );
    ffmpeg
        .args(["-filter_complex", &graph])
        .args("-map [film] -c:v libx264 -preset ultrafast -movflags +faststart".split(' '))
        .arg(directory.join("demo.mp4"))
        .args("-map [still] -frames:v 1 -update 1".split(' '))
        .arg(directory.join("demo.png"));
    run::output(&mut ffmpeg)
        .map(drop)
        .context("making the film")
}

/// Where the picture of a queue (`None`: of the source) is, of six in two rows: the source above the FIFO, then mode tc
/// above mode qdisc.
fn place(queue: Option<Queue>, width: u32, height: u32) -> (u32, u32) {
    let (column, row) = match queue {
        None => (0, 0),
        Some(Queue::Fifo) => (0, 1),
        Some(Queue::TcRules) => (1, 0),
        Some(Queue::TcMarks) => (2, 0),
        Some(Queue::QdiscRules) => (1, 1),
        Some(Queue::QdiscMarks) => (2, 1),
    };
    (column * width, row * height)
}
