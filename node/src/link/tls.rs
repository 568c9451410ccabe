//! TLS 1.3 around a link, where the driver wants it: both sides show the one certificate of the run, and take no other.

use std::fmt::Display;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::Resumption;
use rustls::crypto::{ring, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::NoServerSessionStorage;
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct, DistinguishedName, Error,
    PeerIncompatible, ServerConfig, ServerConnection, SignatureScheme,
};

use super::Trouble;

/// The certificate of the run and its key, which lie beside the file with the key of the run.
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl Identity {
    /// # Errors
    /// A message that names the file, and nothing that is in it.
    pub fn load(key_of_run: &Path) -> Result<Self, String> {
        let [certificate, key] = ["certificate.pem", "certificate.key"].map(|name| key_of_run.with_file_name(name));
        Ok(Self {
            certificate: CertificateDer::from_pem_file(&certificate)
                .map_err(|error| cannot_read(&certificate, error))?,
            key: PrivateKeyDer::from_pem_file(&key).map_err(|error| cannot_read(&key, error))?,
            provider: Arc::new(ring::default_provider()),
        })
    }

    /// The reader's side of a connection.
    pub fn reader(self, address: IpAddr) -> Result<Connection, Error> {
        let pinned = self.pinned();
        let mut config = ClientConfig::builder_with_provider(self.provider)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(pinned)
            .with_client_auth_cert(vec![self.certificate], self.key)?;
        config.resumption = Resumption::disabled();
        Ok(ClientConnection::new(Arc::new(config), ServerName::from(address))?.into())
    }

    /// The sender's side of a connection.
    pub fn sender(self) -> Result<Connection, Error> {
        let pinned = self.pinned();
        let mut config = ServerConfig::builder_with_provider(self.provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(pinned)
            .with_single_cert(vec![self.certificate], self.key)?;
        // Nothing is resumed, and a reader that is done has nothing left to read.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(ServerConnection::new(Arc::new(config))?.into())
    }

    fn pinned(&self) -> Arc<Pinned> {
        Arc::new(Pinned { certificate: self.certificate.clone(), provider: self.provider.clone() })
    }
}

fn cannot_read(path: &Path, error: impl Display) -> String {
    format!("{}: {error}", path.display())
}

/// The refusal of another certificate, where that is why a connection has failed.
pub fn refusal(error: &io::Error) -> Option<Trouble> {
    match error.get_ref()?.downcast_ref()? {
        Error::InvalidCertificate(_) => {
            Some(Trouble::Refused("it has another certificate than that of the run".into()))
        }
        _ => None,
    }
}

/// Takes one certificate, byte for byte: no names, no dates, no authorities. That the other side has its key is shown
/// by its signature.
#[derive(Debug)]
struct Pinned {
    certificate: CertificateDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl Pinned {
    fn check(&self, certificate: &CertificateDer<'_>, others: &[CertificateDer<'_>]) -> Result<(), Error> {
        if *certificate == self.certificate && others.is_empty() {
            Ok(())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn check_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
    }

    fn schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(certificate, others).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::ServerDoesNotSupportTls12Or13.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(certificate, others).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes()
    }
}
