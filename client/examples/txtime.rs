//! The `SO_TXTIME` form: deadlines per packet without any privilege.
//!
//! ```text
//! cargo run --example txtime -- 192.0.2.7:5004
//! ```
//!
//! Only for interfaces that bestby is attached to: the kernel's `fq` holds such packets until
//! their deadline. This example therefore looks first, as `Sender::auto` does.

use std::{env, error::Error, net::UdpSocket, time::Duration};

use bestby::{Deadline, Metadata, Packet, Priority, PriorityScope, Sender, Treatment};

fn main() -> Result<(), Box<dyn Error>> {
    let to = env::args()
        .nth(1)
        .ok_or("usage: txtime ADDRESS:PORT")?
        .parse()?;
    if !bestby::is_active() {
        println!("{}", bestby::Error::NotActive);
        return Ok(());
    }
    let socket = UdpSocket::bind("[::]:0").or_else(|_| UdpSocket::bind("0.0.0.0:0"))?;
    let sender = Sender::tx_time(socket, true)?;
    // What happens to stale packets anyway; sockets with an option are counted.
    sender.options().set_treatment(Treatment::Discard)?;
    if sender.priority_scope() == PriorityScope::PerSocket {
        // Before Linux 6.14 one socket has one priority.
        sender.set_socket_priority(Priority::new(2)?)?;
    }

    // A frame of 12 datagrams in one system call: one deadline, all or nothing.
    let frame = vec![0; 12 * 1_200];
    let metadata = Metadata::new()
        .deadline(Deadline::after(Duration::from_millis(200)))
        .priority(Priority::new(2)?);
    let packet = Packet::new(&frame)
        .to(to)
        .metadata(metadata)
        .segment_size(1_200);
    match sender.send_packet(&packet) {
        Ok(bytes) => println!("{bytes} bytes in one super-packet"),
        Err(bestby::Error::Segmentation { .. }) => {
            let singles: Vec<Packet> = packet.segments().collect();
            println!("{} packets one by one", sender.send_batch(&singles)?);
        }
        Err(error) => return Err(error.into()),
    }
    for report in sender.tx_time_reports()? {
        println!("refused by a queue: {report:?}");
    }
    println!("{:?}", sender.options().stats()?);
    Ok(())
}
