"""The certificate of a run, by which both sides of a link know each other."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from msgspec import Struct

_DAY = timedelta(days=1)
_VALID_DAYS = 3650  # a certificate that is compared byte for byte is not checked for its dates


class Certificate(Struct, frozen=True):
    """A certificate that signs itself, and its private key, both in PEM. Both sides of a link show and expect it."""

    certificate: bytes
    key: bytes

    @classmethod
    def make(cls) -> Certificate:
        """Return a new certificate with a random key (ECDSA, P-256)."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "streamflow-io")])
        now = datetime.now(timezone.utc)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _DAY)  # clocks differ
            .not_valid_after(now + _VALID_DAYS * _DAY)
            .sign(key, SHA256())
        )
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return cls(certificate.public_bytes(Encoding.PEM), private)
