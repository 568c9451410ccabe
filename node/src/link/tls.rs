//! TLS 1.3 of a link: both sides show the one certificate of the run, and take no other.

use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::Resumption;
use rustls::crypto::{ring, verify_tls13_signature, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{Accepted, NoServerSessionStorage};
use rustls::version::TLS13;
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct, DistinguishedName, Error,
    PeerIncompatible, ServerConfig, SignatureScheme,
};
use sha2::{Digest, Sha256};

/// How the name of a run begins.
pub const NAME: &str = "sfio-";
/// The first bytes of the digest in the name, before the certificate. The number is the version of the protocol of
/// links.
const PURPOSE: &[u8] = b"sfio link 8";
/// Bytes of the digest that stand in the name.
const NAMED: usize = 24;

/// The name by which readers call the `serve` of a run. Only members of the run have the certificate, and know the
/// name.
///
/// # Errors
/// A message that names the file of the certificate.
pub fn name_of_run(certificate: &Path) -> Result<String, String> {
    CertificateDer::from_pem_file(certificate)
        .map(|found| name(&found))
        .map_err(|error| cannot_read(certificate, error))
}

fn name(certificate: &CertificateDer<'_>) -> String {
    let digest = Sha256::new_with_prefix(PURPOSE).chain_update(certificate).finalize();
    digest[..NAMED].iter().fold(NAME.to_owned(), |name, byte| name + &format!("{byte:02x}"))
}

/// The certificate of the run, and its private key.
pub struct Identity {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl Identity {
    /// Loads the certificate from its file, and the private key from the file of the same name that ends in `.key`.
    ///
    /// # Errors
    /// A message that names the file, and nothing that is in it.
    pub fn load(certificate: &Path) -> Result<Self, String> {
        let key = certificate.with_extension("key");
        Ok(Self {
            certificate: CertificateDer::from_pem_file(certificate).map_err(|error| cannot_read(certificate, error))?,
            key: PrivateKeyDer::from_pem_file(&key).map_err(|error| cannot_read(&key, error))?,
            provider: Arc::new(ring::default_provider()),
        })
    }

    /// The reader's side of a connection.
    pub fn reader(self) -> Result<Connection, Error> {
        let name = ServerName::try_from(name(&self.certificate)).map_err(|error| Error::General(error.to_string()))?;
        Ok(ClientConnection::new(Arc::new(self.reader_config()?), name)?.into())
    }

    /// The sender's side of a connection that a reader has begun with `hello`.
    pub fn sender(self, hello: Accepted) -> Result<Connection, Error> {
        Ok(hello.into_connection(Arc::new(self.sender_config()?)).map_err(|(error, _alert)| error)?.into())
    }

    fn reader_config(self) -> Result<ClientConfig, Error> {
        let pinned = self.pinned();
        let mut config = ClientConfig::builder_with_provider(self.provider)
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(pinned)
            .with_client_auth_cert(vec![self.certificate], self.key)?;
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    fn sender_config(self) -> Result<ServerConfig, Error> {
        let pinned = self.pinned();
        let mut config = ServerConfig::builder_with_provider(self.provider)
            .with_protocol_versions(&[&TLS13])?
            .with_client_cert_verifier(pinned)
            .with_single_cert(vec![self.certificate], self.key)?;
        // Nothing is resumed, and a reader that is done has nothing left to read.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn pinned(&self) -> Arc<Pinned> {
        Arc::new(Pinned { certificate: self.certificate.clone(), provider: self.provider.clone() })
    }
}

fn cannot_read(path: &Path, error: impl Display) -> String {
    format!("{}: {error}", path.display())
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
}

/// How both verifiers check signatures.
macro_rules! signatures {
    () => {
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
            verify_tls13_signature(message, certificate, signature, &self.provider.signature_verification_algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.provider.signature_verification_algorithms.supported_schemes()
        }
    };
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

    signatures!();
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

    signatures!();
}

/// Makes a certificate, which lies in the directory as `NAME.pem`, and its private key beside it.
#[cfg(test)]
pub fn certificate_file(directory: &tempfile::TempDir, name: &str) -> std::path::PathBuf {
    tests::identity().save(&directory.path().join(name).with_extension("pem"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    use ::ring::rand::SystemRandom;
    use ::ring::signature::{EcdsaKeyPair, KeyPair, ECDSA_P256_SHA256_ASN1_SIGNING};
    use base64::prelude::{Engine, BASE64_STANDARD};

    /// A value of ASN.1 in DER.
    fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
        let content = parts.concat();
        let length = match u8::try_from(content.len()).unwrap() {
            short @ 0..=0x7f => vec![short],
            long => vec![0x81, long],
        };
        [&[tag], length.as_slice(), &content].concat()
    }

    /// The least certificate of a key; what signs it is not looked at.
    fn certificate(public_key: &[u8]) -> CertificateDer<'static> {
        let sequence = |parts: &[&[u8]]| der(0x30, parts);
        let bits = |bytes: &[u8]| der(0x03, &[&[0], bytes]);
        let ecdsa_with_sha256 = sequence(&[b"\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02"]);
        let p256 = sequence(&[b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01", b"\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07"]);
        let [begin, end] = [b"200101000000Z", b"400101000000Z"].map(|time| der(0x17, &[time]));
        let (name, validity, key) = (sequence(&[]), sequence(&[&begin, &end]), sequence(&[&p256, &bits(public_key)]));
        let version_and_serial = b"\xa0\x03\x02\x01\x02\x02\x01\x01";
        let signed = sequence(&[version_and_serial, &ecdsa_with_sha256, &name, &validity, &name, &key]);
        sequence(&[&signed, &ecdsa_with_sha256, &bits(b"?")]).into()
    }

    pub fn identity() -> Identity {
        let (algorithm, random) = (&ECDSA_P256_SHA256_ASN1_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
        Identity {
            certificate: certificate(pair.public_key().as_ref()),
            key: PrivateKeyDer::Pkcs8(document.as_ref().to_vec().into()),
            provider: Arc::new(ring::default_provider()),
        }
    }

    impl Identity {
        pub fn save(&self, certificate: &Path) -> PathBuf {
            let pem = |what: &str, der: &[u8]| {
                format!("-----BEGIN {what}-----\n{}\n-----END {what}-----\n", BASE64_STANDARD.encode(der))
            };
            std::fs::write(certificate.with_extension("key"), pem("PRIVATE KEY", self.key.secret_der())).unwrap();
            std::fs::write(certificate, pem("CERTIFICATE", &self.certificate)).unwrap();
            certificate.to_owned()
        }
    }
}
