"""The endpoint's own certificate authority: made per STORE, short-lived, good for nothing but the endpoint's names.

The authority's key is used once and never written down. Nothing is put into any system's or browser's store.
"""

from __future__ import annotations

import os
import ssl
import tempfile
import threading
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mirror_engine.onelake.requests import BLOB, DFS, FABRIC, LOGINS, LOOPBACK_ADDRESSES, LOOPBACK_NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from typing_extensions import Self

LIFE = timedelta(days=7)
MIN_LEFT = timedelta(days=2)  # with less to live an authority is made anew
CLOCKS_DIFFER = timedelta(minutes=5)
ISSUER = "mirror-engine local authority"

_CA, _BUNDLE, _LEAF = "ca.pem", "bundle.pem", "endpoint.pem"


@dataclass(frozen=True)
class Authority:
    """Where an endpoint's certificates lie.

    Attributes:
        ca: the authority's certificate alone, for programs that add it to their own roots.
        bundle: it and this machine's usual roots, for programs that replace theirs.
        leaf: the endpoint's certificate and its key, readable by its owner alone.
    """

    ca: Path
    bundle: Path
    leaf: Path

    def context(self) -> ssl.SSLContext:
        """What the endpoint's TLS listener needs."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(self.leaf)
        return context


def authority(folder: Path, address: str = LOOPBACK_ADDRESSES[0], now: datetime | None = None) -> Authority:
    """The authority in a private folder: the one that is there while it is good, else a new one.

    Args:
        folder: made if need be, for its owner alone; nothing in it is ever served.
        address: where the endpoint listens; named in the certificate beside the loopback.
        now: the time; the clock's by default.
    """
    now = now or datetime.now(timezone.utc)
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    made = Authority(folder / _CA, folder / _BUNDLE, folder / _LEAF)
    addresses = sorted({*LOOPBACK_ADDRESSES, *([] if ip_address(address).is_unspecified else [address])})
    if not _is_good(made, addresses, now):
        _make(made, addresses, now)
    return made


def _is_good(made: Authority, addresses: Sequence[str], now: datetime) -> bool:
    try:
        ca = x509.load_pem_x509_certificate(made.ca.read_bytes())
        leaf = x509.load_pem_x509_certificate(made.leaf.read_bytes())
        leaf.verify_directly_issued_by(ca)
        made.context()
        is_bundled = made.bundle.read_text(encoding="ascii").startswith(made.ca.read_text(encoding="ascii"))
    except (OSError, ValueError, InvalidSignature):  # an SSLError is an OSError
        return False
    named = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    covered = {str(each) for each in named.get_values_for_type(x509.IPAddress)}
    is_private = made.leaf.stat().st_mode & 0o077 == 0
    lasts = leaf.not_valid_before_utc <= now <= leaf.not_valid_after_utc - MIN_LEFT
    return is_private and is_bundled and lasts and covered == set(addresses)


def _make(made: Authority, addresses: Sequence[str], now: datetime) -> None:
    ca_key, leaf_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = _root(ca_key, addresses, now)
    leaf = _leaf(ca, ca_key, leaf_key.public_key(), addresses)
    ca_text = ca.public_bytes(Encoding.PEM)
    key_text = leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    # the leaf last: until it is there, the three do not fit and are made again
    _replace(made.ca, ca_text)
    _replace(made.bundle, ca_text + _usual_roots())
    _replace(made.leaf, leaf.public_bytes(Encoding.PEM) + key_text)


def _root(key: ec.EllipticCurvePrivateKey, addresses: Sequence[str], now: datetime) -> x509.Certificate:
    """The authority's own certificate; a publisher that trusts it trusts it for these names only."""
    names = (*LOOPBACK_NAMES, DFS, BLOB, FABRIC, *LOGINS)  # a permitted name permits what is below it
    permitted = [
        *(x509.DNSName(name) for name in names),
        *(x509.IPAddress(ip_network(address)) for address in addresses),
    ]
    usage = _key_usage(signs_certificates=True)
    return (
        _certificate(_name(ISSUER), key.public_key(), now - CLOCKS_DIFFER, now - CLOCKS_DIFFER + LIFE)
        .issuer_name(_name(ISSUER))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.NameConstraints(permitted, excluded_subtrees=None), critical=True)
        .sign(key, hashes.SHA256())
    )


def _leaf(
    ca: x509.Certificate, ca_key: ec.EllipticCurvePrivateKey, key: ec.EllipticCurvePublicKey, addresses: Sequence[str]
) -> x509.Certificate:
    names = (*LOOPBACK_NAMES, f"*.{DFS}", f"*.{BLOB}", FABRIC, *LOGINS)
    alternatives = [
        *(x509.DNSName(name) for name in names),
        *(x509.IPAddress(ip_address(address)) for address in addresses),
    ]
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    return (
        _certificate(_name("mirror-engine endpoint"), key, ca.not_valid_before_utc, ca.not_valid_after_utc)
        .issuer_name(ca.subject)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(ca_key, hashes.SHA256())
    )


def _certificate(
    subject: x509.Name, key: ec.EllipticCurvePublicKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _usual_roots() -> bytes:
    """What this machine trusts, but no other STORE's authority."""
    roots = ssl.create_default_context().get_ca_certs(binary_form=True)
    return "".join(ssl.DER_cert_to_PEM_cert(root) for root in roots if ISSUER.encode() not in root).encode("ascii")


def _replace(path: Path, content: bytes) -> None:
    """Write a file in one step; from its first byte on nobody but its owner may read it."""
    descriptor, name = tempfile.mkstemp(dir=path.parent)  # made with mode 0600
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    os.replace(name, path)  # noqa: PTH105 - the name is text


LOOK_SECONDS = 3600.0


class Renewal:
    """While entered, new connections get the authority's newest certificate.

    Publishers that are started later read the new authority from the same files; one that runs for days trusts the
    old one and must be started anew.

    Args:
        folder: see `authority`.
        address: see `authority`.
        tls: what the endpoint's listener uses.
        tell: is told where it fails.
    """

    def __init__(self, folder: Path, address: str, tls: ssl.SSLContext, tell: Callable[[str], None]) -> None:
        self._folder = folder
        self._address = address
        self._tls = tls
        self._tell = tell
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, name="renewal", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self._renew()

    def _renew(self) -> None:
        try:
            self._tls.load_cert_chain(authority(self._folder, self._address).leaf)
        except OSError as error:
            self._tell(f"the certificate was not renewed: {error.strerror}")
