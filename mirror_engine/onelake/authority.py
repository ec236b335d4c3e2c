"""The emulator's certificate authority: its files, and the trust stores of clients."""

from __future__ import annotations

import ssl
import warnings
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12
from cryptography.utils import CryptographyDeprecationWarning
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from mirror_engine.onelake.hosts import FABRIC, LOGINS, LOOPBACK, LOOPBACK_ADDRESSES, ONELAKE
from mirror_engine.storage.local import write_private

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LIFETIME = timedelta(days=30)
CLOCK_SKEW = timedelta(minutes=5)
ISSUER = "mirror-engine local authority"


@dataclass(frozen=True)
class Authority:
    """The emulator's certificate files."""

    ca: Path  # the authority's certificate alone, for programs that add it to their own roots
    bundle: Path  # it and this machine's roots, for programs that replace theirs
    java: Path  # the bundle as a trust store for Java: PKCS#12 without a password
    leaf: Path  # the emulator's certificate and key, readable by its owner alone

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(self.leaf)
        return context


def create_authority(
    folder: Path, address: str = LOOPBACK, own_names: Sequence[str] = (), *, now: datetime | None = None
) -> Authority:
    """Create an authority and the emulator's certificate in a folder for its owner alone, replacing earlier ones.

    The certificate names the address and these host names of this machine besides those of loopback and production.
    """
    begins = (now or datetime.now(UTC)) - CLOCK_SKEW
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    addresses = sorted({*LOOPBACK_ADDRESSES, *([] if ip_address(address).is_unspecified else [address])})
    ca_key, leaf_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    # name-constrained, and a permitted name includes its subdomains: a publisher trusts it for these alone
    own, others = ("localhost", *own_names), (FABRIC, *LOGINS)
    permitted: list[x509.GeneralName] = [x509.DNSName(name) for name in (*own, *ONELAKE, *others)]
    permitted += [x509.IPAddress(ip_network(address)) for address in addresses]
    ca = (
        _certificate(ISSUER, ca_key, begins, is_ca=True)
        .add_extension(x509.NameConstraints(permitted, excluded_subtrees=None), critical=True)
        .sign(ca_key, hashes.SHA256())
    )
    wildcards = [f"*.{domain}" for domain in ONELAKE]
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in (*own, *wildcards, *others)]
    names += [x509.IPAddress(ip_address(address)) for address in addresses]
    issuer_key = x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key())
    leaf = (
        _certificate("mirror-engine emulator", leaf_key, begins, is_ca=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(issuer_key, critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    ca_text = ca.public_bytes(Encoding.PEM)
    key_text = leaf_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    roots = _machine_roots()
    created = Authority(folder / "ca.pem", folder / "bundle.pem", folder / "java.p12", folder / "emulator.pem")
    write_private(created.ca, ca_text)
    write_private(created.bundle, ca_text + "".join(map(ssl.DER_cert_to_PEM_cert, roots)).encode("ascii"))
    write_private(created.java, _trust_store(ca, roots))
    write_private(created.leaf, leaf.public_bytes(Encoding.PEM) + key_text)
    return created


def _certificate(
    common_name: str, key: ec.EllipticCurvePrivateKey, begins: datetime, *, is_ca: bool
) -> x509.CertificateBuilder:
    """What both certificates have; issued by `ISSUER`."""
    subject, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in (common_name, ISSUER))
    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    unused = dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
    usage = x509.KeyUsage(digital_signature=not is_ca, key_cert_sign=is_ca, crl_sign=is_ca, **unused)
    return (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True)
        .add_extension(usage, critical=True)
    )


def _machine_roots() -> list[bytes]:
    """This machine's trusted roots as DER, without other STOREs' authorities."""
    roots = ssl.create_default_context().get_ca_certs(binary_form=True)
    return [root for root in roots if ISSUER.encode() not in root]


def _trust_store(authority: x509.Certificate, roots: Sequence[bytes]) -> bytes:
    """PKCS#12 with Java's mark of a trusted certificate, unencrypted: Java reads that with any password or none.

    Roots of another form than X.509 version 3, or 1, demands are left out.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CryptographyDeprecationWarning)  # an old root has the serial number 0
        trusted = [authority]
        for root in roots:
            with suppress(ValueError, x509.InvalidVersion):  # OpenSSL accepts more
                trusted.append(x509.load_der_x509_certificate(root))
    entries = [pkcs12.PKCS12Certificate(each, b"%d" % place) for place, each in enumerate(trusted)]
    return pkcs12.serialize_java_truststore(entries, NoEncryption())
