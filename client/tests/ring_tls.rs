//! A ring above TLS (rustls), read by rustls and by OpenSSL (Python's `ssl`).
//!
//! `tls/` has a certificate for localhost and its key, of these tests only.
#![cfg(feature = "rustls")]
#![allow(clippy::unwrap_used)]

use std::{
    io::{ErrorKind, Read, Write as _},
    net::{TcpListener, TcpStream},
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use bestby::{
    Lifetime, Metadata, Priority,
    tcp::{Fate, Options, Reason, Ring, State, Tls, Wire as _},
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    SupportedProtocolVersion,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
    version::{TLS12, TLS13},
};

/// Longer than any test takes.
const LONG: Duration = Duration::from_secs(100);

fn certificate() -> CertificateDer<'static> {
    CertificateDer::from(&include_bytes!("tls/cert.der")[..])
}

fn server(socket: &mut TcpStream, version: &'static SupportedProtocolVersion) -> ServerConnection {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = PrivatePkcs8KeyDer::from(&include_bytes!("tls/key.der")[..]);
    let config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate()], PrivateKeyDer::from(key))
        .unwrap();
    let mut connection = ServerConnection::new(Arc::new(config)).unwrap();
    while connection.is_handshaking() {
        connection.complete_io(socket).unwrap();
    }
    connection
}

fn client(socket: TcpStream) -> StreamOwned<ClientConnection, TcpStream> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut roots = RootCertStore::empty();
    roots.add(certificate()).unwrap();
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    StreamOwned::new(connection, socket)
}

fn said(lifetime: Duration, priority: u8) -> Metadata {
    Metadata::new()
        .lifetime(Lifetime::new(lifetime).unwrap())
        .priority(Priority::new(priority).unwrap())
}

/// Length behind it, number, and bytes that follow from the number.
fn frame(number: u32, bytes: usize) -> Vec<u8> {
    let mut frame = (bytes as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(&number.to_be_bytes());
    frame.extend((0..bytes).map(|n| (n as u32 ^ number) as u8));
    frame
}

/// Numbers of the frames until the stream ends.
fn frames(stream: &mut impl Read) -> Vec<u32> {
    let mut numbers = Vec::new();
    let mut header = [0; 8];
    while stream.read_exact(&mut header).is_ok() {
        let field = |at: usize| u32::from_be_bytes(*header[at..].first_chunk().unwrap());
        let mut rest = vec![0; field(0) as usize];
        stream.read_exact(&mut rest).unwrap();
        assert_eq!(rest, frame(field(4), rest.len())[8..], "torn");
        numbers.push(field(4));
    }
    numbers
}

fn end(ring: Ring<Tls<TcpStream>>) {
    let mut tls = ring.close().wire;
    let mut told = tls.close_notify();
    while told
        .as_ref()
        .is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    {
        thread::sleep(Duration::from_millis(5));
        told = tls.flush();
    }
    told.unwrap();
    assert_eq!(tls.held(), 0);
    drop(tls.into_parts());
}

#[test]
fn rustls_reads_what_the_ring_chose_in_both_versions() {
    for version in [&TLS13, &TLS12] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let reading = thread::spawn(move || {
            let mut stream = client(TcpStream::connect(address).unwrap());
            stream.write_all(b"please").unwrap();
            frames(&mut stream)
        });
        let mut socket = listener.accept().unwrap().0;
        let connection = server(&mut socket, version);
        let mut ring = Ring::new(Tls::new(connection, socket).unwrap()).unwrap();
        let form = ring.form();
        assert!(form.window && form.unsent && form.acknowledged && form.events);

        // The other direction is the application's.
        let mut request = [0; 16];
        let until = Instant::now() + LONG;
        let read = loop {
            match ring.wire_mut().read(&mut request) {
                Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < until => {
                    ring.run_until(Instant::now() + Duration::from_millis(5))
                        .unwrap();
                }
                result => break result.unwrap(),
            }
        };
        assert_eq!(&request[..read], b"please");

        let tickets: Vec<_> = (0..300)
            .map(|number| ring.push(frame(number, 20_000), said(LONG, 3)))
            .collect();
        let stale = ring.push(frame(999, 100), said(Duration::from_nanos(1), 3));
        assert!(ring.finish(Instant::now() + LONG).unwrap());
        assert_eq!(ring.state(stale), State::GivenUp(Reason::Stale));
        while ring.state(tickets[299]) != State::Acknowledged && Instant::now() < until {
            ring.run_until(Instant::now() + Duration::from_millis(5))
                .unwrap();
        }
        assert_eq!(
            ring.state(tickets[299]),
            State::Acknowledged,
            "{:?}",
            ring.stats()
        );
        let stats = ring.stats();
        assert_eq!((stats.bytes, stats.sent), (300 * 20_008, 300));
        end(ring);
        assert_eq!(reading.join().unwrap(), (0..300).collect::<Vec<_>>());
    }
}

/// Reads frames with OpenSSL and prints their numbers.
const PYTHON: &str = r#"
import socket, ssl, struct, sys, time
context = ssl.create_default_context(cafile=sys.argv[2])
stream = context.wrap_socket(socket.create_connection(("127.0.0.1", int(sys.argv[1]))), server_hostname="localhost")
time.sleep(float(sys.argv[3]))
file = stream.makefile("rb")
while header := file.read(8):
    length, number = struct.unpack("!II", header)
    rest = file.read(length)
    assert rest == bytes((n ^ number) & 255 for n in range(length)), "torn"
    print(number)
"#;

#[test]
fn openssl_that_stops_reading_gets_whole_frames_and_what_is_stale_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let certificate = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tls/cert.pem");
    let python = Command::new("python3")
        .args(["-c", PYTHON, &port, certificate, "1.5"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut socket = listener.accept().unwrap().0;
    let connection = server(&mut socket, &TLS13);
    let tls = Tls::new(connection, socket).unwrap();
    let options = Options::new().limits(5000, 64 << 20);
    let mut ring = Ring::with(tls, options).unwrap();
    for number in 0..1_500 {
        let lifetime = if number % 3 == 2 {
            Duration::from_millis(500)
        } else {
            LONG
        };
        ring.push(frame(number, 10_000), said(lifetime, 3));
    }
    assert!(ring.finish(Instant::now() + LONG).unwrap());
    let drives = ring.stats().drives;
    assert!(drives < 20_000, "{drives}");
    let mut sent = Vec::new();
    let mut stale = 0;
    for outcome in ring.outcomes() {
        match outcome.fate {
            Fate::Sent { .. } => sent.push(outcome.ticket.number() as u32),
            Fate::GivenUp(_) => stale += 1,
        }
    }
    assert_eq!(sent.len() + stale, 1_500);
    end(ring);
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let mut numbers: Vec<u32> = text.lines().map(|line| line.parse().unwrap()).collect();
    numbers.sort_unstable();
    sent.sort_unstable();
    assert_eq!(numbers, sent);
}

#[test]
fn handshake_that_is_not_complete_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (connection, socket) = {
        let stream = client(socket);
        (stream.conn, stream.sock)
    };
    let error = Tls::new(connection, socket).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}
