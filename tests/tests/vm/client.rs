//! The `SO_TXTIME` form before the kernel's own qdiscs, which this machine's kernel may lack:
//! what the crate warns of, and that its control message is exactly the deadline.

use std::{net::UdpSocket, time::Duration};

use crate::client_lab::{Receiver, drop_capabilities};
use bestby::{Deadline, Form, Lifetime, Metadata, Sender, TxTimeReason, TxTimeReport};
use bestby_tests::{
    netns::{in_namespace, shell},
    socket::set,
};

fn udp() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").unwrap()
}

/// The trap of the form, and at the same time the proof that the packet carries its deadline.
#[test]
fn fq_holds_a_tx_time_packet_until_its_deadline() {
    in_namespace(|| {
        shell("tc qdisc add dev lo root fq");
        let receiver = Receiver::new("127.0.0.1:0");
        let sender = Sender::tx_time(udp(), false).unwrap();
        let deadline = Deadline::after(Duration::from_millis(700));
        sender
            .send_to(
                b"held",
                receiver.address,
                &Metadata::new().deadline(deadline),
            )
            .unwrap();
        assert_eq!(receiver.receive().payload, b"held");
        assert_eq!(deadline.remaining(), None, "it came before its deadline");

        // A lifetime is a deadline by then.
        let lifetime = Metadata::new().lifetime(Lifetime::from_millis(500).unwrap());
        let deadline = Deadline::after(Duration::from_millis(490));
        sender
            .send_to(b"held, too", receiver.address, &lifetime)
            .unwrap();
        assert_eq!(receiver.receive().payload, b"held, too");
        assert_eq!(deadline.remaining(), None);
    });
}

/// So an automatic sender does not use the form where bestby is not active.
#[test]
fn auto_sender_above_fq_is_not_held() {
    in_namespace(|| {
        shell("tc qdisc add dev lo root fq");
        assert!(
            !bestby::is_active(),
            "this test needs a host without bestby"
        );
        let receiver = Receiver::new("127.0.0.1:0");
        let marked = Sender::auto(udp());
        assert_eq!(marked.form(), Form::Mark);
        drop_capabilities();
        let plain = Sender::auto(udp());
        assert_eq!(plain.form(), Form::Plain);
        for sender in [marked, plain] {
            let deadline = Deadline::after(Duration::from_secs(30));
            let metadata = Metadata::new().deadline(deadline);
            sender
                .send_to(b"at once", receiver.address, &metadata)
                .unwrap();
            // Receiver gives up after 5 s.
            assert_eq!(receiver.receive().payload, b"at once");
        }
    });
}

/// etf runs on CLOCK_TAI: it refuses every packet of this form, and says so with the deadline.
#[test]
fn etf_reports_the_deadline_of_a_refused_packet() {
    in_namespace(|| {
        shell("tc qdisc add dev lo root etf clockid CLOCK_TAI delta 100000 deadline_mode");
        let receiver = Receiver::new("127.0.0.1:0");
        let reporting = Sender::tx_time(udp(), true).unwrap();
        let silent = Sender::tx_time(udp(), false).unwrap();
        let deadlines: Vec<u64> = (1..4u64).map(|n| n << 32 | 0x8765_4321).collect();
        for ns in &deadlines {
            let metadata = Metadata::new().deadline(Deadline::from_monotonic_ns(*ns));
            for sender in [&reporting, &silent] {
                // Without IP_RECVERR the drop is no error of the call.
                sender
                    .send_to(b"refused", receiver.address, &metadata)
                    .unwrap();
            }
        }
        let expected: Vec<TxTimeReport> = deadlines
            .iter()
            .map(|ns| TxTimeReport {
                deadline_ns: *ns,
                reason: TxTimeReason::Refused,
            })
            .collect();
        assert_eq!(reporting.tx_time_reports().unwrap(), expected);
        assert_eq!(
            reporting.tx_time_reports().unwrap(),
            [],
            "each is told once"
        );
        assert_eq!(silent.tx_time_reports().unwrap(), []);
        receiver.assert_empty();
    });
}

/// Asked to tell (IP_RECVERR), the socket learns that a local queue refused its packet.
#[test]
fn drop_by_a_local_queue_is_reported_as_such() {
    in_namespace(|| {
        shell("tc qdisc add dev lo root etf clockid CLOCK_TAI delta 100000 deadline_mode");
        let receiver = Receiver::new("127.0.0.1:0");
        let sender = Sender::tx_time(udp(), false).unwrap();
        set(sender.get_ref(), libc::SOL_IP, libc::IP_RECVERR, &1i32).unwrap();
        let metadata = Metadata::new().lifetime(Lifetime::from_millis(200).unwrap());
        let error = sender
            .send_to(b"refused", receiver.address, &metadata)
            .unwrap_err();
        assert!(matches!(error, bestby::Error::DroppedLocally(_)), "{error}");
    });
}
