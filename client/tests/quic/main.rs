//! `bestby::quic` between real endpoints of quinn over loopback.
//!
//! What takes time is in tests/tests/vm_icount/quic.rs, where time is virtual.
//!
//! `../tls/` has a certificate for localhost and its key, of these tests only.
#![cfg(feature = "quic")]
#![allow(clippy::unwrap_used)]

mod aioquic;
mod ends;
mod faults;
mod semantics;

use bestby::quic::transport_config;

async fn plain() -> ends::Pair {
    ends::pair(transport_config(), transport_config()).await
}
