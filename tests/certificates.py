"""Certificates for the tests of TLS: of servers on this machine, and of clients that must prove who they are."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Certificate:
    """PEM files: what others trust, the private key, and both in one."""

    public: str
    key: str
    both: str


def new_certificate(folder: Path, name: str, key_password: str = "", *, host: str = "") -> Certificate:
    """A certificate for 127.0.0.1, or for `host`, that signs itself."""
    pytest.importorskip("cryptography", reason="needs cryptography: pip install cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.x509.oid import NameOID

    key = rsa.generate_private_key(public_exponent=65_537, key_size=2048)
    title = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{name} for tests")])
    now = datetime.datetime.now(datetime.timezone.utc)
    names = x509.SubjectAlternativeName([x509.DNSName(host) if host else x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    signed = (
        x509.CertificateBuilder(title, title, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=2))
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=not host, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    locked = serialization.BestAvailableEncryption(key_password.encode()) if key_password else serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
    public = signed.public_bytes(serialization.Encoding.PEM)
    files = {"public": public, "key": private, "both": private + public}
    for kind, content in files.items():
        (folder / f"{name}-{kind}.pem").write_bytes(content)
    return Certificate(**{kind: str(folder / f"{name}-{kind}.pem") for kind in files})
