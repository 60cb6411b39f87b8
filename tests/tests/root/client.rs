//! The client crate against the kernel: marks and priorities as they arrive, privileges,
//! full buffers, the C example.

use std::{
    net::UdpSocket, os::unix::process::CommandExt as _, path::Path, process::Command, sync::Arc,
    time::Duration,
};

use crate::client_lab::{Receiver, drop_capabilities};
use bestby::{
    AduIds, Deadline, Error, Form, Lifetime, Magic, Mark, Metadata, Packet, Priority,
    PriorityScope, Sender, ValueError,
};
use bestby_tests::{
    netns::{in_namespace, in_thread, shell},
    socket::set,
};

/// Of the mark's time field, ns.
const UNIT: u64 = bestby::abi::MARK_UNIT_NS;

fn udp() -> UdpSocket {
    UdpSocket::bind("[::]:0").unwrap()
}

fn now_ns() -> u64 {
    Deadline::after(Duration::ZERO).as_monotonic_ns()
}

/// Metadata that names each field, different for each `n`.
fn metadata(n: u8) -> Metadata {
    crate::client_lab::metadata(n)
        .deadline(Deadline::after(Duration::from_millis(100 + u64::from(n))))
}

/// The mark that the data path would read as `metadata`.
fn assert_carries(mark: u32, metadata: &Metadata) {
    let read = Mark::from_bits(mark).decode(now_ns(), Magic::default());
    let read = read.unwrap_or_else(|| panic!("{mark:#010x} has no magic"));
    let bestby::Expiry::At(wanted) = metadata.get_expiry() else {
        panic!("{metadata:?}")
    };
    let bestby::Expiry::At(got) = read.get_expiry() else {
        panic!("{mark:#010x}: {read:?}")
    };
    let lost = wanted.as_monotonic_ns().checked_sub(got.as_monotonic_ns());
    assert!(
        lost.is_some_and(|lost| lost < 2 * UNIT),
        "{got:?} for {wanted:?}"
    );
    assert_eq!(read.deadline(wanted), *metadata, "{mark:#010x}");
}

// ---- the mark form ----

#[test]
fn mark_of_each_packet_arrives_as_encoded() {
    in_namespace(|| {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let receiver = Receiver::new(address);
            let sender = Sender::mark(UdpSocket::bind(address).unwrap()).unwrap();
            assert_eq!(
                (sender.form(), sender.priority_scope()),
                (Form::Mark, PriorityScope::PerPacket)
            );
            for n in 0..16 {
                let said = metadata(n);
                sender.send_to(&[n], receiver.address, &said).unwrap();
                let got = receiver.receive();
                assert_eq!(got.payload, [n]);
                assert_carries(got.mark, &said);
            }
            sender.get_ref().connect(receiver.address).unwrap();
            let lifetime = Metadata::new().lifetime(Lifetime::from_millis(200).unwrap());
            sender.send(b"relative", &lifetime).unwrap();
            assert_eq!(
                receiver.receive().mark,
                0xB038_0000 | 800,
                "and the default priority"
            );
            sender.send(b"nothing said", &Metadata::new()).unwrap();
            assert_eq!(receiver.receive().mark, 0, "no mark at all");
            let far = Metadata::new().deadline(Deadline::after(Duration::from_secs(66)));
            let error = sender.send(b"far", &far).unwrap_err();
            assert!(
                matches!(error, Error::Value(ValueError::DeadlineTooFar(_))),
                "{error}"
            );
            receiver.assert_empty();
        }
    });
}

#[test]
fn each_packet_of_a_batch_has_its_own_mark() {
    in_namespace(|| {
        let receivers = [Receiver::new("127.0.0.1:0"), Receiver::new("127.0.0.1:0")];
        let sender = Sender::mark(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        let payloads: Vec<[u8; 1]> = (0..100).map(|n| [n]).collect();
        let all: Vec<Metadata> = (0..100).map(metadata).collect();
        let mut packets: Vec<Packet> = payloads
            .iter()
            .zip(&all)
            .map(|(p, m)| {
                Packet::new(p)
                    .to(receivers[usize::from(p[0] % 2)].address)
                    .metadata(*m)
            })
            .collect();
        // One without metadata must not get its neighbour's mark.
        packets[50] = Packet::new(&payloads[50]).to(receivers[0].address);
        // One that cannot be encoded stops the batch there, after what precedes it was sent.
        let far = Metadata::new().deadline(Deadline::after(Duration::from_secs(100)));
        packets[70] = packets[70].metadata(far);
        assert_eq!(sender.send_batch(&packets).unwrap(), 70);
        assert!(matches!(
            sender.send_batch(&packets[70..]),
            Err(Error::Value(_))
        ));
        assert_eq!(sender.send_batch(&packets[71..]).unwrap(), 29);
        for n in (0..100u8).filter(|n| *n != 70) {
            let got = receivers[usize::from(n % 2)].receive();
            assert_eq!(got.payload, [n]);
            match n {
                50 => assert_eq!(got.mark, 0),
                _ => assert_carries(got.mark, &all[usize::from(n)]),
            }
        }
    });
}

#[test]
fn segments_of_a_super_packet_share_its_mark() {
    in_namespace(|| {
        let receiver = Receiver::new("[::1]:0");
        let sender = Sender::mark(UdpSocket::bind("[::1]:0").unwrap()).unwrap();
        let payload: Vec<u8> = (0..6_000u32).map(|n| (n / 1_000) as u8).collect();
        let said = metadata(5);
        let packet = Packet::new(&payload)
            .to(receiver.address)
            .metadata(said)
            .segment_size(1_000);
        let sent = run_counting_packets(|| {
            assert_eq!(sender.send_packet(&packet).unwrap(), 6_000);
        });
        assert_eq!(sent, 1, "one trip through the stack");
        for n in 0..6 {
            let got = receiver.receive();
            assert_eq!(got.payload, [n; 1_000]);
            assert_carries(got.mark, &said);
        }
        receiver.assert_empty();
    });
}

/// How many packets the IPv6 layer of this namespace handed down during `send`.
fn run_counting_packets(send: impl FnOnce()) -> u64 {
    let count = || -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/net/snmp6").unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with("Ip6OutRequests"))
            .unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let before = count();
    send();
    count() - before
}

#[test]
fn mark_with_a_custom_magic_arrives_with_it() {
    in_namespace(|| {
        let receiver = Receiver::new("127.0.0.1:0");
        let magic = Magic::new(0x5000_0000, 0x7000_0000).unwrap();
        let sender = Sender::mark(UdpSocket::bind("127.0.0.1:0").unwrap())
            .unwrap()
            .with_magic(magic);
        sender.send_to(b"", receiver.address, &metadata(1)).unwrap();
        let got = Mark::from_bits(receiver.receive().mark);
        assert_eq!(got.get() >> 28, 5);
        assert!(got.decode(now_ns(), magic).is_some());
        assert_eq!(got.decode(now_ns(), Magic::default()), None);
    });
}

// ---- privileges ----

#[test]
fn mark_sender_without_capability_is_refused_and_auto_goes_on() {
    in_namespace(|| {
        let receiver = Receiver::new("127.0.0.1:0");
        drop_capabilities();
        let error = Sender::mark(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap_err();
        assert!(matches!(error, Error::MarkNotPermitted(_)), "{error}");
        assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");

        // The same program goes on, in whatever form is left.
        let sender = Sender::auto(UdpSocket::bind("127.0.0.1:0").unwrap());
        let expected = if bestby::is_active() {
            Form::TxTime
        } else {
            Form::Plain
        };
        assert_eq!(sender.form(), expected);
        for n in 0..3 {
            sender
                .send_to(&[n], receiver.address, &metadata(n))
                .unwrap();
            let got = receiver.receive();
            assert_eq!((got.payload, got.mark), (vec![n], 0));
        }
        let packets = [Packet::new(b"ab").to(receiver.address).segment_size(1); 2];
        assert_eq!(sender.send_batch(&packets).unwrap(), 2);
        for expected in [b"a", b"b", b"a", b"b"] {
            assert_eq!(receiver.receive().payload, expected);
        }
    });
}

/// A server that gives up its privileges after setting up its sockets.
#[test]
fn auto_sender_that_loses_its_capability_loses_no_packet() {
    in_namespace(|| {
        let receiver = Receiver::new("127.0.0.1:0");
        let auto = Sender::auto(UdpSocket::bind("127.0.0.1:0").unwrap());
        let fixed = Sender::mark(UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        auto.send_to(b"marked", receiver.address, &metadata(0))
            .unwrap();
        assert_eq!(receiver.receive().mark >> 28, 0xB);
        assert_eq!(auto.form(), Form::Mark);

        drop_capabilities();
        let packets = [Packet::new(b"unmarked")
            .to(receiver.address)
            .metadata(metadata(1)); 3];
        assert_eq!(auto.send_batch(&packets).unwrap(), 3);
        for _ in 0..3 {
            let got = receiver.receive();
            assert_eq!(
                (got.payload.as_slice(), got.mark),
                (b"unmarked".as_slice(), 0)
            );
        }
        assert_ne!(auto.form(), Form::Mark);

        let error = fixed
            .send_to(b"refused", receiver.address, &metadata(2))
            .unwrap_err();
        assert!(matches!(error, Error::MarkNotPermitted(_)), "{error}");
        // Without metadata there is nothing to refuse.
        fixed
            .send_to(b"plain", receiver.address, &Metadata::new())
            .unwrap();
        assert_eq!(receiver.receive().payload, b"plain");
        receiver.assert_empty();
    });
}

// ---- the SO_TXTIME form ----

#[test]
fn tx_time_without_privilege_carries_a_priority_per_packet() {
    in_namespace(|| {
        let receiver = Receiver::new("127.0.0.1:0");
        drop_capabilities();
        let sender = Sender::tx_time(UdpSocket::bind("127.0.0.1:0").unwrap(), false).unwrap();
        sender
            .set_socket_priority(Priority::new(5).unwrap())
            .unwrap();
        let own = |priority| {
            let metadata = metadata(0).priority(Priority::new(priority).unwrap());
            sender
                .send_to(b"frame", receiver.address, &metadata)
                .unwrap();
            receiver.receive().priority
        };
        let scope = sender.priority_scope();
        // SO_RCVPRIORITY and the SO_PRIORITY control message came in the same release.
        match own(0) {
            None => assert_eq!(scope, PriorityScope::PerSocket),
            Some(first) => {
                assert_eq!((scope, first), (PriorityScope::PerPacket, 6));
                let values: Vec<_> = (1..8).map(|p| own(p).unwrap()).collect();
                assert_eq!(values, [6, 5, 3, 4, 2, 1, 1]);
                let unsaid = Metadata::new().lifetime(Lifetime::MAX);
                sender.send_to(b"", receiver.address, &unsaid).unwrap();
                assert_eq!(receiver.receive().priority, Some(2), "the socket's");
            }
        }
    });
}

// ---- full buffers ----

/// Loopback at 400 kbit/s and a small send buffer.
fn slow_loopback() {
    shell("tc qdisc add dev lo root tbf rate 400kbit burst 3000 limit 1000000");
}

fn small_buffer(socket: &UdpSocket) {
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &4_608i32).unwrap();
}

#[test]
fn full_buffer_is_would_block_and_loses_no_packet() {
    in_namespace(|| {
        slow_loopback();
        let receiver = Receiver::new("127.0.0.1:0");
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        small_buffer(&socket);
        let sender = Sender::mark(socket).unwrap();
        let payload = [0; 1_000];
        let packets = [Packet::new(&payload)
            .to(receiver.address)
            .metadata(metadata(3)); 50];
        let (mut sent, mut refused) = (0, 0);
        while sent < packets.len() {
            match sender.send_batch(&packets[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.is_would_block() => {
                    refused += 1;
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(refused > 0, "50 kB through a 4.6 kB buffer at 400 kbit/s");
        for _ in 0..50 {
            assert_eq!(receiver.receive().mark >> 28, 0xB);
        }
        receiver.assert_empty();
    });
}

#[test]
fn tokio_sender_waits_until_the_socket_is_writable() {
    in_namespace(|| {
        slow_loopback();
        let receiver = Receiver::new("127.0.0.1:0");
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        let (sent, ticks) = runtime.block_on(async {
            let socket = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let socket = socket.into_std().unwrap();
            small_buffer(&socket);
            let socket = Arc::new(tokio::net::UdpSocket::from_std(socket).unwrap());
            let sender = bestby::tokio::Sender::mark(socket).unwrap();
            let payload = [0; 1_000];
            let packets = [Packet::new(&payload)
                .to(receiver.address)
                .metadata(metadata(3)); 20];
            let send = async {
                let mut sent = 0;
                while sent < packets.len() {
                    sent += sender.send_batch(&packets[sent..]).await.unwrap();
                }
                for _ in 0..10 {
                    sender.send_packet(&packets[0]).await.unwrap();
                    sent += 1;
                }
                sent
            };
            // The runtime has one thread: another task runs only while `send` waits.
            let mut ticks = 0;
            let tick = async {
                loop {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    ticks += 1;
                }
            };
            tokio::pin!(send);
            let sent = tokio::select! { sent = &mut send => sent, () = tick => unreachable!() };
            (sent, ticks)
        });
        assert_eq!(sent, 30);
        // 30 packets of 1,042 bytes at 400 kbit/s are 625 ms, minus burst and buffer.
        assert!(ticks > 0, "the thread was blocked");
        for _ in 0..30 {
            assert_eq!(receiver.receive().mark >> 28, 0xB);
        }
        receiver.assert_empty();
    });
}

// ---- the C example ----

#[test]
fn c_example_sends_marks_as_encoded() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("send");
    let client = Path::new(env!("CARGO_MANIFEST_DIR")).join("../client");
    let output = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()))
        .args([
            "-std=c99",
            "-pedantic",
            "-Wall",
            "-Wextra",
            "-Wconversion",
            "-Werror",
            "-I",
        ])
        .arg(client.join("include"))
        .arg("-o")
        .arg(&program)
        .arg(client.join("examples/send.c"))
        .output()
        .expect("a C compiler");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    in_namespace(|| {
        let receiver = Receiver::new("127.0.0.1:0");
        let port = receiver.address.port().to_string();
        let send = |unprivileged: bool| {
            let mut command = Command::new(&program);
            command.args(["127.0.0.1", &port, "12"]);
            if unprivileged {
                command.uid(65_534).gid(65_534);
            }
            String::from_utf8(command.output().unwrap().stdout).unwrap()
        };
        assert_eq!(send(false), "form: mark\npackets: 36\n");
        let mut adus = AduIds::default();
        for frame in 0..12 {
            let marks: Vec<u32> = (0..3).map(|_| receiver.receive().mark).collect();
            assert!(
                marks.iter().all(|mark| *mark == marks[0]),
                "one frame: {marks:x?}"
            );
            let priority = if frame % 10 == 0 { 1 } else { 4 };
            let read = Mark::from_bits(marks[0])
                .decode(now_ns(), Magic::default())
                .unwrap();
            assert_eq!(read.get_priority().unwrap().get(), priority);
            assert_eq!(read.get_adu(), Some(adus.take_id()));
            let bestby::Expiry::At(deadline) = read.get_expiry() else {
                panic!("{read:?}")
            };
            let away = deadline.as_monotonic_ns().abs_diff(now_ns());
            assert!(away < 5_000_000_000, "deadline {away} ns away");
        }
        // It may execute, so that the error would be the program's own.
        std::fs::set_permissions(
            dir.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        let form = if bestby::is_active() {
            "SO_TXTIME"
        } else {
            "plain"
        };
        assert_eq!(send(true), format!("form: {form}\npackets: 36\n"));
        for _ in 0..36 {
            let got = receiver.receive();
            assert_eq!((got.payload.len(), got.mark), (1_200, 0));
        }
        receiver.assert_empty();
    });
}

/// What the lab itself relies on: capabilities are per thread.
#[test]
fn capabilities_are_dropped_for_one_thread_only() {
    in_thread(drop_capabilities);
    Sender::mark(udp()).unwrap();
}
