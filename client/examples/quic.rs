//! Frames over QUIC, a stream each: what is lost is repeated as long as it can be in time, and delays nothing else.
//! `docs/applications.md` shows it. The certificate and the key are of the tests; use your own.
//!
//! ```sh
//! cd client/tests/tls
//! cargo run -p bestby --example quic --features quic -- receive 127.0.0.1:4433 cert.der key.der
//! cargo run -p bestby --example quic --features quic -- send 127.0.0.1:4433 cert.der
//! ```
use std::{env::args, fs, net::SocketAddr, sync::Arc, time::Duration};

use bestby::{
    Deadline, Metadata,
    quic::{ALPN, Options, Receiver, ReceiverOptions, Sender, transport_config},
};
use quinn::{
    ClientConfig, Endpoint, ServerConfig,
    crypto::rustls::{QuicClientConfig, QuicServerConfig},
};
use rustls::pki_types::PrivatePkcs8KeyDer;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let words: Vec<String> = args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["send", address, certificate] => send(address.parse()?, certificate).await,
        ["receive", address, certificate, key] => receive(address.parse()?, certificate, key).await,
        _ => Err(
            "usage: quic send ADDRESS:PORT CERTIFICATE | quic receive ADDRESS:PORT CERTIFICATE KEY"
                .into(),
        ),
    }
}

async fn send(address: SocketAddr, certificate: &str) -> Result<()> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(fs::read(certificate)?.into())?;
    let mut crypto = rustls::ClientConfig::builder()
        .with_root_certificates(roots)
        .with_no_client_auth();
    crypto.alpn_protocols = vec![ALPN.to_vec()];
    let mut config = ClientConfig::new(Arc::new(QuicClientConfig::try_from(crypto)?));
    config.transport_config(Arc::new(transport_config()));
    let endpoint = Endpoint::client("[::]:0".parse()?)?;
    let connection = endpoint.connect_with(config, address, "localhost")?.await?;

    let sender = Sender::new(connection.clone(), Options::new());
    for number in 0..100_u8 {
        let useful = Metadata::new().deadline(Deadline::after(Duration::from_millis(300)));
        sender.send(vec![number; 4_000], useful)?; // never waits
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    sender.finish().await;
    println!("{:?}", sender.stats());
    connection.close(0_u32.into(), b"the end");
    endpoint.wait_idle().await;
    Ok(())
}

async fn receive(address: SocketAddr, certificate: &str, key: &str) -> Result<()> {
    let key = PrivatePkcs8KeyDer::from(fs::read(key)?);
    let mut crypto = rustls::ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![fs::read(certificate)?.into()], key.into())?;
    crypto.alpn_protocols = vec![ALPN.to_vec()];
    let mut config = ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(crypto)?));
    config.transport_config(Arc::new(transport_config()));
    let endpoint = Endpoint::server(config, address)?;
    println!("{}", endpoint.local_addr()?);
    let connection = endpoint
        .accept()
        .await
        .ok_or("the endpoint is closed")?
        .await?;

    let mut receiver = Receiver::new(connection, ReceiverOptions::new());
    let mut frames = 0;
    while let Ok(adu) = receiver.recv().await {
        frames += 1; // once and whole; which one is in adu.id
        assert_eq!(adu.payload.len(), 4_000);
    }
    println!("{frames} frames");
    Ok(())
}
