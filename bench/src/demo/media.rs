//! ffmpeg: makes the media once, plays them to the relay as RTP, and judges in
//! the end what a decoder makes of the frames that came in time.

use std::{
    collections::HashSet,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
};

use anyhow::{Context as _, Result, bail, ensure};
use serde::{Deserialize, Serialize};

use super::relay::{AUDIO_PORT, VIDEO_PORT};
use crate::{decoder, netns::Netns, run};

/// Frames per second of the video.
pub(super) const FPS: u32 = 25;
/// One frame in this many can be decoded alone: a key frame each 2 s.
const KEY_FRAMES_EVERY: u32 = 50;
/// Payload of an RTP packet with its RTP header, bytes.
const RTP_BYTES: u32 = 1200;

/// The encoded media, the same for all runs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Media {
    /// Where they are (NUT container, H.264 and Opus).
    pub(super) file: PathBuf,
    /// Length, s.
    pub seconds: u32,
    /// Frames of video.
    pub frames: u64,
    /// What the video came to, kbit/s.
    pub video_kbit_s: f64,
    /// What the audio came to, kbit/s.
    pub audio_kbit_s: f64,
    /// How they were made.
    pub encoder: String,
}

/// What ffmpeg made of one run's video.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decoded {
    /// Frames that ffmpeg's decoder returned, concealed ones included.
    pub frames: u64,
    /// Those of them that are, pixel for pixel (MD5), a frame that was encoded:
    /// no picture they refer to is missing.
    pub intact: u64,
}

/// Encodes `seconds` of test pictures with film grain, and of a chord.
///
/// Live settings: no frame is larger than an eighth of a second of the link can
/// carry, one slice per frame, key frame each 2 s. Four of five pictures are
/// B pictures that no other refers to: the only temporal layers x264 has, in
/// the place of the layers (L1T2, L1T3) that a conference's encoder makes.
pub(super) fn encode(directory: &Path, seconds: u32) -> Result<Media> {
    let file = directory.join("media.nut");
    let x264 = format!(
        "keyint={KEY_FRAMES_EVERY}:min-keyint={KEY_FRAMES_EVERY}:scenecut=0:open-gop=0:bframes=4:b-adapt=0:\
         b-pyramid=none:weightp=0:sliced-threads=0:repeat-headers=1:pbratio=0.7:ipratio=1.0:mbtree=0:ratetol=0.1"
    );
    let video = format!("testsrc2=s=640x360:r={FPS},noise=alls=40:allf=t");
    let audio = "aevalsrc=0.2*sin(2*PI*220*t)+0.2*sin(2*PI*277*t)+0.2*sin(2*PI*330*t):s=48000[a];\
                 anoisesrc=r=48000:a=0.05:c=pink[b];[a][b]amix";
    let mut ffmpeg = Command::new("ffmpeg");
    ffmpeg
        .args("-hide_banner -v error -nostdin -y".split(' '))
        .args(["-f", "lavfi", "-i", &video, "-f", "lavfi", "-i", audio])
        .args(["-t", &seconds.to_string(), "-pix_fmt", "yuv420p"])
        .args("-c:v libx264 -preset veryfast -b:v 2050k -maxrate 3300k -bufsize 132k".split(' '))
        .args(["-x264-params", &x264])
        .args("-c:a libopus -b:a 96k -vbr off -frame_duration 20 -ac 2 -f nut".split(' '))
        .arg(&file);
    run::output(&mut ffmpeg).context("encoding the media")?;

    let packets = run::output(
        Command::new("ffprobe")
            .args("-v error -show_entries packet=codec_type,size -of csv=p=0".split(' '))
            .arg(&file),
    )
    .context("measuring the media")?;
    let (mut frames, mut video_bytes, mut audio_bytes) = (0, 0, 0);
    for line in packets.lines() {
        let mut fields = line.split(',');
        let kind = fields.next();
        let size: u64 = fields.next().and_then(|f| f.parse().ok()).unwrap_or(0);
        match kind {
            Some("video") => {
                frames += 1;
                video_bytes += size;
            }
            Some("audio") => audio_bytes += size,
            _ => {}
        }
    }
    ensure!(
        frames > 0 && audio_bytes > 0,
        "ffprobe finds no media in {}",
        file.display()
    );
    let kbit_s = |bytes: u64| bytes as f64 * 8.0 / 1e3 / f64::from(seconds);
    Ok(Media {
        file,
        seconds,
        frames,
        video_kbit_s: kbit_s(video_bytes),
        audio_kbit_s: kbit_s(audio_bytes),
        encoder: format!("ffmpeg: {video}; libx264 veryfast {x264}; libopus 96k"),
    })
}

/// ffmpeg as the encoder's side of a call: sends the media as RTP, in real time.
#[derive(Debug)]
pub(super) struct Player {
    child: Child,
    log: PathBuf,
}

impl Player {
    /// Starts in `namespace`, towards the relay's ports on loopback.
    pub(super) fn start(namespace: &Netns, media: &Media, directory: &Path) -> Result<Self> {
        let log = directory.join("player.log");
        let mut ffmpeg = namespace.command("ffmpeg")?;
        ffmpeg.args("-hide_banner -v error -nostdin -re".split(' '));
        // ffmpeg from 6.1 on starts with half a second at once unless told not to.
        if run::sh("ffmpeg -hide_banner -h long")?.contains("readrate_initial_burst") {
            ffmpeg.args(["-readrate_initial_burst", "0.001"]);
        }
        ffmpeg.arg("-i").arg(&media.file);
        for (stream, port) in [("0:v", VIDEO_PORT), ("0:a", AUDIO_PORT)] {
            let url = format!("rtp://127.0.0.1:{port}?pkt_size={RTP_BYTES}");
            ffmpeg.args(["-map", stream, "-c", "copy", "-f", "rtp", &url]);
        }
        let child = ffmpeg
            .stdin(Stdio::null())
            // The session description; both ends know it here.
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()
            .context("starting ffmpeg to play the media")?;
        Ok(Self { child, log })
    }

    /// Has it played everything? An error if it could not.
    pub(super) fn finished(&mut self) -> Result<bool> {
        let Some(status) = self.child.try_wait().context("waiting for ffmpeg")? else {
            return Ok(false);
        };
        self.check(status)?;
        Ok(true)
    }

    fn check(&self, status: ExitStatus) -> Result<()> {
        if !status.success() {
            let log = fs::read_to_string(&self.log).unwrap_or_default();
            bail!(
                "ffmpeg stopped playing the media ({status}): {}",
                log.trim()
            );
        }
        Ok(())
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// MD5 of every frame of the media: what an undisturbed player shows.
pub(super) fn reference(media: &Media) -> Result<HashSet<String>> {
    let frames = decoder::pictures(&media.file, "nut")?;
    ensure!(
        frames.len() as u64 == media.frames,
        "ffmpeg decodes {} of the {} frames it encoded",
        frames.len(),
        media.frames
    );
    Ok(frames.into_iter().map(|picture| picture.md5).collect())
}

/// Decodes an H.264 byte stream and compares with the [`reference`].
pub(super) fn decode(stream: &Path, reference: &HashSet<String>) -> Result<Decoded> {
    if fs::metadata(stream)
        .with_context(|| format!("reading {}", stream.display()))?
        .len()
        == 0
    {
        return Ok(Decoded::default());
    }
    let frames = decoder::pictures(stream, "h264")?;
    let shown = frames.iter().map(|picture| &picture.md5);
    let intact: HashSet<_> = shown.filter(|md5| reference.contains(*md5)).collect();
    Ok(Decoded {
        frames: frames.len() as u64,
        intact: intact.len() as u64,
    })
}
