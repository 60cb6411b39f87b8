//! Against another QUIC stack: `../aioquic_peer.py`. It needs aioquic, which ./dev installs: without, these tests fail
//! and say so.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use bestby::quic::{
    Fate, Options, Order, Receiver, ReceiverOptions, Renewed, Sender, transport_config,
};
use quinn::Connection;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::ChildStdout,
    time::timeout,
};

use crate::ends::{LONG, client, crypto, said};

/// The Python that ./dev installs packages for.
fn python() -> PathBuf {
    let tools = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../tools/bin/python");
    let found = Command::new(&tools)
        .args(["-c", "import aioquic"])
        .stderr(Stdio::null())
        .status();
    assert!(
        found.is_ok_and(|status| status.success()),
        "no aioquic: ./dev installs what bench/report/requirements.txt names"
    );
    tools
}

/// A connection to the peer, and what the peer says.
async fn peer(
    mode: &str,
) -> (
    Connection,
    quinn::Endpoint,
    Lines<BufReader<ChildStdout>>,
    tokio::process::Child,
) {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut child = tokio::process::Command::new(python())
        .arg(tests.join("aioquic_peer.py"))
        .args([mode.as_ref(), tests.join("tls").as_os_str()])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = timeout(LONG, lines.next_line())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let port: u16 = line.strip_prefix("port ").unwrap().parse().unwrap();
    let end = client(Arc::new(crypto()), transport_config());
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let connecting = end.connect(address, "localhost").unwrap();
    let connection = timeout(LONG, connecting).await.unwrap().unwrap();
    (connection, end, lines, child)
}

#[tokio::test]
async fn aioquic_receives_each_adu_once_with_its_newest_version() {
    let (connection, _end, mut lines, _child) = peer("receive").await;
    let sender = Sender::new(connection.clone(), Options::new());
    let mut contents = BTreeMap::new();
    let mut tickets = Vec::new();
    // More than aioquic allows at once.
    for number in 0..300_usize {
        let content: Vec<u8> = (0..number * 17).map(|n| (n ^ number) as u8).collect();
        let metadata = said(LONG, (number % 8) as u8);
        let ticket = sender.send(content.clone(), metadata).unwrap();
        contents.insert(ticket.number(), (0, content));
        tickets.push(ticket);
    }
    let large = sender.send(vec![1; 800_000], said(LONG, 0)).unwrap();
    while sender.stats().bytes < 20_000 || sender.state(large) == bestby::quic::State::Waiting {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(sender.renew(large, vec![2; 300_000]), Ok(Renewed::Again(1)));
    contents.insert(large.number(), (1, vec![2; 300_000]));
    // Of no use in less time than a round trip takes.
    let hopeless = sender
        .send("late", said(Duration::from_nanos(1), 0))
        .unwrap();
    timeout(LONG, sender.finish()).await.unwrap();
    let outcomes = sender.outcomes().await;
    assert_eq!(outcomes.len(), 302);
    for outcome in outcomes {
        let given_up = matches!(outcome.fate, Fate::GivenUp(_));
        assert_eq!(given_up, outcome.ticket == hopeless, "{outcome:?}");
    }
    connection.close(7_u32.into(), b"");

    let mut resets = 0;
    let mut got = BTreeMap::new();
    while let Some(line) = timeout(LONG, lines.next_line()).await.unwrap().unwrap() {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["adu", id, version, priority, left, digest] => {
                let id: u64 = id.parse().unwrap();
                let expected = if id < 300 { id % 8 } else { 0 };
                assert_eq!(priority.parse(), Ok(expected));
                assert!(left.parse::<u64>().unwrap() <= LONG.as_millis() as u64);
                let version: u16 = version.parse().unwrap();
                let known = got.insert(id, (version, digest.to_owned()));
                assert!(known.is_none(), "twice: {id}");
            }
            ["reset", code] => {
                assert_eq!(code, "11");
                resets += 1;
            }
            ["notice", ..] => {}
            ["end", code] => assert_eq!(code, "7"),
            _ => panic!("{line}"),
        }
    }
    let expected: BTreeMap<_, _> = contents
        .into_iter()
        .map(|(id, (version, content))| (id, (version, digest(&content))))
        .collect();
    assert!(got == expected, "{} of {}", got.len(), expected.len());
    assert_eq!(resets, 1);
}

/// SHA-256.
fn digest(content: &[u8]) -> String {
    use rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;

    let suite = TLS13_AES_128_GCM_SHA256.tls13().unwrap();
    let hash = suite.common.hash_provider.hash(content);
    let digits = hash.as_ref().iter().map(|byte| format!("{byte:02x}"));
    digits.collect()
}

#[tokio::test]
async fn streams_written_by_aioquic_are_understood() {
    let (connection, _end, _lines, _child) = peer("send").await;
    let options = ReceiverOptions::new().order(Order::ById);
    let mut receiver = Receiver::new(connection.clone(), options);
    let mut got = Vec::new();
    for _ in 0..6 {
        got.push(timeout(LONG, receiver.recv()).await.unwrap().unwrap());
    }
    let ids: Vec<_> = got.iter().map(|adu| adu.id).collect();
    assert_eq!(ids, [0, 2, 3, 4, 5, 70_000]);
    assert_eq!(&got[0].payload[..], b"plain");
    assert_eq!((got[1].version, got[1].priority.get()), (1, 5));
    assert_eq!(got[1].left, Some(Duration::from_millis(250)));
    assert_eq!(&got[3].payload[..], b"unknown flag");
    assert_eq!((got[4].payload.len(), got[5].payload.len()), (0, 200_000));
    assert_eq!(receiver.stats().notices, 1);
    connection.close(0_u32.into(), b"");
}
