//! Two ends of a WebRTC session that do nothing but ICE and DTLS, by a real stack (str0m).

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use str0m::media::{Direction, MediaKind};
use str0m::net::{Protocol, Receive};
use str0m::{Candidate, Input, Output, Rtc};

/// Ends a talk when it is dropped.
pub(crate) struct End<'a>(pub(crate) &'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn end(socket: &UdpSocket) -> Rtc {
    let mut rtc = Rtc::builder()
        .set_crypto_provider(Arc::new(str0m::crypto::from_feature_flags()))
        .build(Instant::now());
    let own = socket.local_addr().unwrap();
    rtc.add_local_candidate(Candidate::host(own, "udp").unwrap());
    rtc
}

/// Sends what the session has to say.
fn drain(rtc: &mut Rtc, socket: &UdpSocket) {
    loop {
        match rtc.poll_output().unwrap() {
            Output::Timeout(at) if at > Instant::now() => return,
            Output::Timeout(_) => rtc.handle_input(Input::Timeout(Instant::now())).unwrap(),
            Output::Transmit(datagram) => {
                // What is lost is sent again.
                let _ = socket.send_to(&datagram.contents, datagram.destination);
            }
            Output::Event(_) => {}
        }
    }
}

/// Both ends talk by these sockets until it is over. Both are full agents (RFC 8445): each asks the other.
pub(crate) fn talk(sockets: [UdpSocket; 2], over: &AtomicBool) {
    let mut ends = sockets.each_ref().map(end);
    let [first, second] = &mut ends;
    let mut changes = first.sdp_api();
    changes.add_media(MediaKind::Audio, Direction::SendOnly, None, None, None);
    let (offer, pending) = changes.apply().unwrap();
    let answer = second.sdp_api().accept_offer(offer).unwrap();
    first.sdp_api().accept_answer(pending, answer).unwrap();
    for socket in &sockets {
        socket
            .set_read_timeout(Some(Duration::from_millis(5)))
            .unwrap();
    }
    let mut buffer = [0; 2000];
    while !over.load(Ordering::Relaxed) {
        for (rtc, socket) in ends.iter_mut().zip(&sockets) {
            drain(rtc, socket);
            if let Ok((length, source)) = socket.recv_from(&mut buffer) {
                let own = socket.local_addr().unwrap();
                // Forged ones are refused here or there.
                if let Ok(received) = Receive::new(Protocol::Udp, source, own, &buffer[..length]) {
                    let input = Input::Receive(Instant::now(), received);
                    if rtc.accepts(&input) {
                        rtc.handle_input(input).unwrap();
                    }
                }
            }
            rtc.handle_input(Input::Timeout(Instant::now())).unwrap();
        }
    }
}
