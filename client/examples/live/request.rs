//! Requests of RTSP (`rtsp`; RFC 2326, section 6).

use std::{collections::BTreeMap, io};

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _};

/// Neither a head nor a body is longer.
const LONGEST: u64 = 16_384;

pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) url: String,
    /// Names in small letters.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Request {
    pub(crate) async fn read(reading: &mut (impl AsyncBufRead + Unpin)) -> io::Result<Self> {
        let mut text = String::new();
        let mut head = (&mut *reading).take(LONGEST);
        while !text.ends_with("\r\n\r\n") {
            if head.read_line(&mut text).await? == 0 {
                return Err(io::Error::other("its request does not end"));
            }
        }
        let mut lines = text.lines();
        let mut words = lines
            .next()
            .unwrap_or_default()
            .split(' ')
            .map(str::to_owned);
        let (method, url) = (
            words.next().unwrap_or_default(),
            words.next().unwrap_or_default(),
        );
        let headers = lines.filter_map(|line| line.split_once(':'));
        let headers =
            headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()));
        let headers: BTreeMap<String, String> = headers.collect();
        let length = headers
            .get("content-length")
            .map_or(Ok(0), |length| length.parse());
        let length = length.ok().filter(|length| *length <= LONGEST);
        let length = length.ok_or_else(|| io::Error::other("a body without a sensible length"))?;
        let mut body = String::new();
        reading.take(length).read_to_string(&mut body).await?;
        Ok(Self {
            method,
            url,
            headers,
            body,
        })
    }
}
