//! Two ends of a connection.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bestby::{
    Lifetime, Metadata, Priority,
    quic::{ALPN, Fate, Sender},
};
use quinn::{
    ClientConfig, Connection, Endpoint, ServerConfig, TransportConfig,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};

use tokio::time::timeout;

/// Longer than any test takes.
pub(crate) const LONG: Duration = Duration::from_secs(100);

pub(crate) struct Pair {
    pub(crate) near: Connection,
    pub(crate) far: Connection,
    /// Kept: an endpoint that is dropped ends its connections.
    pub(crate) _ends: (Endpoint, Endpoint),
}

pub(crate) fn said(lifetime: Duration, priority: u8) -> Metadata {
    Metadata::new()
        .lifetime(Lifetime::new(lifetime).unwrap())
        .priority(Priority::new(priority).unwrap())
}

pub(crate) fn crypto() -> QuicClientConfig {
    let certificate = CertificateDer::from(&include_bytes!("../tls/cert.der")[..]);
    let mut roots = RootCertStore::empty();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.try_into().unwrap()
}

pub(crate) fn server(transport: TransportConfig) -> Endpoint {
    let certificate = CertificateDer::from(&include_bytes!("../tls/cert.der")[..]);
    let key = PrivatePkcs8KeyDer::from(&include_bytes!("../tls/key.der")[..]);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], PrivateKeyDer::from(key))
        .unwrap();
    config.alpn_protocols = vec![ALPN.to_vec()];
    let config: QuicServerConfig = config.try_into().unwrap();
    let mut config = ServerConfig::with_crypto(Arc::new(config));
    config.transport_config(Arc::new(transport));
    Endpoint::server(config, "127.0.0.1:0".parse().unwrap()).unwrap()
}

pub(crate) fn client(
    crypto: Arc<dyn quinn::crypto::ClientConfig>,
    transport: TransportConfig,
) -> Endpoint {
    let mut config = ClientConfig::new(crypto);
    config.transport_config(Arc::new(transport));
    let mut end = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    end.set_default_client_config(config);
    end
}

/// Connects `near_end` with `far_end` by way of `address`.
pub(crate) async fn join(near_end: Endpoint, far_end: Endpoint, address: SocketAddr) -> Pair {
    let connecting = near_end.connect(address, "localhost").unwrap();
    let accepting = async { far_end.accept().await.unwrap().await };
    let (near, far) = tokio::join!(connecting, accepting);
    Pair {
        near: near.unwrap(),
        far: far.unwrap(),
        _ends: (near_end, far_end),
    }
}

/// `far` is what the receiving end allows.
pub(crate) async fn pair(near: TransportConfig, far: TransportConfig) -> Pair {
    let far_end = server(far);
    let address = far_end.local_addr().unwrap();
    join(client(Arc::new(crypto()), near), far_end, address).await
}

/// Every ADU has an outcome, all of them these.
pub(crate) async fn outcomes(sender: &Sender, count: usize) -> Vec<Fate> {
    timeout(LONG, sender.finish()).await.unwrap();
    let fates: Vec<_> = sender
        .outcomes()
        .await
        .iter()
        .map(|outcome| outcome.fate)
        .collect();
    let stats = sender.stats();
    assert_eq!(fates.len(), count);
    assert_eq!(
        stats.taken,
        stats.acknowledged + stats.given_up.total(),
        "{stats:?}"
    );
    assert_eq!(
        (stats.waiting, stats.unacknowledged, stats.waiting_bytes),
        (0, 0, 0)
    );
    fates
}
