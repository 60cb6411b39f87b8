//! LPD's option that an application puts into its packets for the stamp to fill.

use std::{
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
};

use crate::stamp_lab::*;
use bestby_bpf::abi::*;
use bestby_tests::socket::set;

/// A place for the option: forward, so that an unfilled one harms nothing, but a corrupted payload is borne.
const PLACE4: [u8; 8] = [TYPE4, 8, 5, 0x80, 0, 0, 0, 0];
const PLACE6: [u8; 16] = [0, 1, 1, 0, TYPE6, 6, 5, 0x80, 0, 0, 0, 0, 1, 2, 0, 0];

fn place(socket: &impl std::os::fd::AsRawFd, six: bool) {
    if six {
        set(socket, libc::IPPROTO_IPV6, libc::IPV6_HOPOPTS, &PLACE6).unwrap();
    } else {
        set(socket, libc::IPPROTO_IP, libc::IP_OPTIONS, &PLACE4).unwrap();
    }
}

#[test]
fn stamp_fills_the_place_that_an_application_left() {
    for offloads in OFFLOADS {
        Bench::on(&[rule()], offloads, |bench| {
            let mut filled = 0;
            for (to, header) in ADDRESSES {
                let receiver = bench.receiver(to);
                let six = header == 40;
                let socket = sender(to);
                place(&socket, six);
                let full = 1500 - header - 8 - if six { 16 } else { 8 };
                for length in [1, full] {
                    let payload = bytes(length);
                    socket.send(&payload).unwrap();
                    let seen = bench.delivered(&receiver, &[&payload]);
                    assert_eq!(seen[0].option().unwrap()[2..4], [5, 0x80 | DISCARD]);
                    assert!((9_000..=10_000).contains(&seen[0].lifetime_ms()));
                    filled += 1;
                }
                let payload = bytes(4000);
                socket.send(&payload).unwrap();
                bench.delivered(&receiver, &[&payload]);
                filled += 3;
                if offloads != Offload::None {
                    set(&socket, libc::IPPROTO_UDP, UDP_SEGMENT, &(full as i32)).unwrap();
                    let payload = bytes(full * 4);
                    socket.send(&payload).unwrap();
                    let parts: Vec<&[u8]> = payload.chunks(full).collect();
                    let seen = bench.delivered(&receiver, &parts);
                    assert!(
                        seen.iter()
                            .all(|p| p.option().unwrap()[3] == 0x80 | DISCARD)
                    );
                    filled += 1;
                }
                bench.counted(BB_G_STAMPED, filled);
            }
        });
    }
}

#[test]
fn stamp_fills_a_place_at_an_odd_address() {
    Bench::on(&[rule()], Offload::All, |bench| {
        let receiver = bench.receiver("10.9.0.2");
        let socket = sender("10.9.0.2");
        let odd = [&[1], PLACE4.as_slice(), &[1, 1, 0]].concat();
        set(&socket, libc::IPPROTO_IP, libc::IP_OPTIONS, odd.as_slice()).unwrap();
        socket.send(b"x").unwrap();
        let seen = bench.delivered(&receiver, &[b"x"]);
        assert_eq!(sum16(&seen[0].ip[..32]), 0xffff);
        assert_eq!(seen[0].ip[21..25], [TYPE4, 8, 5, 0x80 | DISCARD]);
        bench.counted(BB_G_STAMPED, 1);
    });
}

/// A lifetime of 0 would be over at a last hop that trusts this host.
#[test]
fn stamp_has_an_acknowledgement_with_a_place_forwarded() {
    Bench::on(&[rule()], Offload::All, |bench| {
        for (to, header) in ADDRESSES {
            let listener = bench.peer.enter(|| TcpListener::bind((to, PORT)).unwrap());
            let mut near = TcpStream::connect((to, PORT)).unwrap();
            let (mut far, _) = listener.accept().unwrap();
            place(&near, header == 40);
            bench.tap.seen();
            far.write_all(b"y").unwrap();
            near.read_exact(&mut [0]).unwrap();
            let acknowledgement = loop {
                if let Some(seen) = bench.tap.seen().pop() {
                    break seen;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            };
            assert!(acknowledgement.payload().is_empty());
            let option = acknowledgement.option().unwrap();
            assert_eq!((acknowledgement.lifetime_ms(), option[3]), (65_535, 0x80));
        }
        assert_eq!(bench.lab.global(BB_G_STAMPED), 0);
    });
}

#[test]
fn stamp_fills_the_places_of_all_data_of_tcp_and_has_its_acknowledgements_forwarded() {
    for offloads in OFFLOADS {
        Bench::on(&[rule()], offloads, |bench| {
            for (to, header) in ADDRESSES {
                let six = header == 40;
                let seen = transfer(bench, to, 100_000, |stream| place(stream, six));
                let mut data = 0;
                for packet in &seen {
                    let Some(option) = packet.option() else {
                        continue; // the handshake
                    };
                    if packet.payload().is_empty() {
                        assert_eq!((packet.lifetime_ms(), option[3]), (65_535, 0x80));
                    } else {
                        data += packet.payload().len();
                        assert_eq!(option[2..4], [5, 0x80 | DISCARD]);
                    }
                }
                assert!(data >= 100_000); // some may have been sent twice
            }
        });
    }
}
