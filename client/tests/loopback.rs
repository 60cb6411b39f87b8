//! Real sockets on loopback; no privilege needed, and everything must pass with and without
//! bestby on the host. What the marks look like on the wire is tested by the workspace's
//! `tests/tests/root/client.rs`.

#![allow(clippy::unwrap_used)]

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::unix::net::UnixDatagram,
    time::Duration,
};

use bestby::{
    AduIds, Deadline, Error, Form, Lifetime, Metadata, Packet, Peer, Priority, Sender,
    SocketOptions, Treatment,
};

fn receiver(address: &str) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(address).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 70_000];
    let len = socket.recv(&mut buffer).expect("a datagram within 5 s");
    buffer[..len].to_vec()
}

fn full_metadata() -> Metadata {
    Metadata::new()
        .deadline(Deadline::after(Duration::from_secs(5)))
        .priority(Priority::new(2).unwrap())
        .treatment(Treatment::Forward)
        .adu(AduIds::default().take_id())
}

#[test]
fn auto_form_sends_on_any_host() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (receiver, to) = receiver(address);
        let sender = Sender::auto(UdpSocket::bind(address).unwrap());
        assert_eq!(sender.send_to(b"one", to, &full_metadata()).unwrap(), 3);
        sender.get_ref().connect(to).unwrap();
        assert_eq!(sender.send(b"two!", &Metadata::new()).unwrap(), 4);
        assert_eq!(sender.send(b"", &full_metadata()).unwrap(), 0);
        assert_eq!(
            [receive(&receiver), receive(&receiver)],
            [b"one".to_vec(), b"two!".to_vec()]
        );
        assert_eq!(receive(&receiver), b"");
        assert_eq!(sender.redetect(), sender.form());
    }
}

/// SO_TXTIME needs no privilege, and loopback has no qdisc that would hold the packet.
#[test]
fn tx_time_form_sends_any_deadline_and_priority() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (receiver, to) = receiver(address);
        let sender = Sender::tx_time(UdpSocket::bind(address).unwrap(), true).unwrap();
        assert_eq!(sender.form(), Form::TxTime);
        let lifetime = Metadata::new()
            .lifetime(Lifetime::MAX)
            .priority(Priority::HIGHEST);
        // A deadline that only the mark could not carry.
        let never = Metadata::new().deadline(Deadline::from_monotonic_ns(u64::MAX));
        for metadata in [full_metadata(), lifetime, never, Metadata::new()] {
            sender.send_to(b"frame", to, &metadata).unwrap();
            assert_eq!(receive(&receiver), b"frame");
        }
        assert_eq!(
            sender.tx_time_reports().unwrap(),
            [],
            "nothing refused a packet"
        );
        for priority in 0..8 {
            sender
                .set_socket_priority(Priority::new(priority).unwrap())
                .unwrap();
        }
    }
}

/// The kernel has another errno for them: EOPNOTSUPP.
#[test]
fn stats_of_a_unix_socket_are_not_active() {
    let (_peer, socket) = UnixDatagram::pair().unwrap();
    match SocketOptions::of(&socket).stats() {
        Ok(_) => assert!(bestby::is_active()),
        Err(error) => assert!(
            matches!(error, Error::NotActive) && !bestby::is_active(),
            "{error}"
        ),
    }
}

#[test]
fn batch_keeps_order_and_destinations() {
    let (odd, odd_at) = receiver("127.0.0.1:0");
    let (even, even_at) = receiver("127.0.0.1:0");
    let sender = Sender::auto(UdpSocket::bind("127.0.0.1:0").unwrap());
    let payloads: Vec<[u8; 1]> = (0..100).map(|n| [n]).collect();
    let packets: Vec<Packet> = payloads
        .iter()
        .map(|p| {
            let to = if p[0] % 2 == 0 { even_at } else { odd_at };
            Packet::new(p).to(to).metadata(full_metadata())
        })
        .collect();
    assert_eq!(
        sender.send_batch(&packets).unwrap(),
        100,
        "four system calls"
    );
    assert_eq!(sender.send_batch(&[]).unwrap(), 0);
    for n in 0..100 {
        assert_eq!(receive(if n % 2 == 0 { &even } else { &odd }), [n]);
    }
}

#[test]
fn batch_with_a_bad_packet_sends_those_before_it() {
    let (receiver, to) = receiver("127.0.0.1:0");
    let sender = Sender::auto(UdpSocket::bind("127.0.0.1:0").unwrap());
    let big = vec![0; 66_000];
    for bad_at in [0, 3, 31, 32, 40] {
        let mut packets = vec![Packet::new(b"good").to(to); 50];
        packets[bad_at] = Packet::new(&big).to(to);
        let sent = sender.send_batch(&packets);
        if bad_at == 0 {
            let error = sent.unwrap_err();
            // EMSGSIZE
            assert!(
                matches!(&error, Error::Io { source, .. } if source.raw_os_error() == Some(90)),
                "{error}"
            );
        } else {
            assert_eq!(sent.unwrap(), bad_at);
        }
        for _ in 0..bad_at {
            assert_eq!(receive(&receiver), b"good");
        }
    }
    receiver
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    assert_eq!(
        receiver.recv(&mut [0; 8]).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
}

#[test]
fn super_packet_arrives_as_its_segments() {
    let (receiver, to) = receiver("127.0.0.1:0");
    let payload: Vec<u8> = (0..10_000u32).map(|n| n as u8).collect();
    let packet = Packet::new(&payload)
        .to(to)
        .segment_size(1_400)
        .metadata(full_metadata());
    for sender in [
        Sender::auto(UdpSocket::bind("127.0.0.1:0").unwrap()),
        Sender::tx_time(UdpSocket::bind("127.0.0.1:0").unwrap(), false).unwrap(),
    ] {
        assert_eq!(sender.send_packet(&packet).unwrap(), 10_000);
        assert_eq!(
            sender
                .send_batch(&[packet, Packet::new(b"end").to(to)])
                .unwrap(),
            2
        );
        for _ in 0..2 {
            for segment in packet.segments() {
                assert_eq!(receive(&receiver), segment.payload());
            }
        }
        assert_eq!(receive(&receiver), b"end");
    }
}

#[test]
fn super_packet_of_too_many_segments_is_refused() {
    let (receiver, to) = receiver("127.0.0.1:0");
    let sender = Sender::auto(UdpSocket::bind("127.0.0.1:0").unwrap());
    // 200 segments: more than any kernel takes.
    let payload = [7; 200];
    let packet = Packet::new(&payload).to(to).segment_size(1);
    let error = sender.send_packet(&packet).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Segmentation {
                segment_size: 1,
                payload: 200,
                ..
            }
        ),
        "{error}"
    );
    assert!(error.to_string().contains("Packet::segments"), "{error}");
    let singles: Vec<Packet> = packet.segments().collect();
    assert_eq!(sender.send_batch(&singles).unwrap(), 200);
    assert_eq!(receive(&receiver), [7]);
}

#[test]
fn socket_error_keeps_its_errno() {
    let sender = Sender::auto(UdpSocket::bind("127.0.0.1:0").unwrap());
    let error = sender.send(b"to nobody", &Metadata::new()).unwrap_err();
    assert!(
        matches!(&error, Error::Io { source, .. } if source.raw_os_error() == Some(89)),
        "{error}"
    );

    let (gone, to) = receiver("127.0.0.1:0");
    drop(gone);
    sender.get_ref().connect(to).unwrap();
    sender.send(b"first", &full_metadata()).unwrap();
    let error = sender.send(b"second", &full_metadata()).unwrap_err();
    assert_eq!(
        std::io::Error::from(error).kind(),
        ErrorKind::ConnectionRefused
    );
}

/// Without bestby every option says so, with it every option works: never something between.
#[test]
fn socket_options_agree_on_whether_bestby_is_active() {
    let udp = UdpSocket::bind("[::1]:0").unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    for options in [SocketOptions::of(&udp), SocketOptions::of(&tcp)] {
        let peer = Peer {
            owd: Some(Duration::from_millis(40)),
            rate: None,
        };
        let results = [
            options.set_lifetime(Some(Lifetime::from_millis(200).unwrap())),
            options.set_lifetime(None),
            options.set_priority(Priority::LOWEST),
            options.set_treatment(Treatment::Discard),
            // TEST-NET-1: nobody's real peer.
            options.set_peer("192.0.2.1".parse().unwrap(), &peer),
            options.stats().map(drop),
        ];
        let active = bestby::is_active();
        for (n, result) in results.iter().enumerate() {
            match result {
                Ok(()) => assert!(active, "option {n} works without bestby"),
                Err(Error::NotActive) => assert!(!active, "option {n} is unknown to bestby"),
                Err(error) => panic!("option {n}: {error}"),
            }
        }
    }
}

#[cfg(feature = "tokio")]
mod tokio_sockets {
    use std::sync::Arc;

    use bestby::tokio::Sender;
    use tokio::net::UdpSocket;

    use super::*;

    #[tokio::test]
    async fn tokio_sender_sends_packets_batches_and_super_packets() {
        let (receiver, to) = receiver("127.0.0.1:0");
        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").await.unwrap());
        for sender in [
            Sender::auto(Arc::clone(&socket)),
            Sender::tx_time(Arc::clone(&socket), false).unwrap(),
        ] {
            assert_eq!(
                sender.send_to(b"to", to, &full_metadata()).await.unwrap(),
                2
            );
            socket.connect(to).await.unwrap();
            assert_eq!(
                sender.send(b"connected", &full_metadata()).await.unwrap(),
                9
            );
            let packets = [Packet::new(b"aabb").segment_size(2), Packet::new(b"c")];
            assert_eq!(sender.send_batch(&packets).await.unwrap(), 2);
            for expected in [b"to".as_slice(), b"connected", b"aa", b"bb", b"c"] {
                assert_eq!(receive(&receiver), expected);
            }
            let error = sender
                .send(&[0; 66_000], &Metadata::new())
                .await
                .unwrap_err();
            assert!(matches!(error, Error::Io { .. }), "{error}");
        }
    }
}
