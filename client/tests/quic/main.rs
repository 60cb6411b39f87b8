//! `bestby::quic` between real endpoints of quinn over loopback.
//!
//! `../tls/` has a certificate for localhost and its key, of these tests only.
#![cfg(feature = "quic")]
#![allow(clippy::unwrap_used)]

mod aioquic;
mod ends;
mod faults;
mod overload;
mod relay;
mod semantics;
mod tap;
