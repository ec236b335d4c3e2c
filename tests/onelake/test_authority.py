"""The emulator's own authority: how long it lives, what it is good for, and where its key is."""

from __future__ import annotations

import shutil
import ssl
import stat
import subprocess
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import load_pem_private_key, pkcs12
from raw_http import connected, running
from starlette.responses import Response

from mirror_engine.onelake import authority as module
from mirror_engine.onelake.authority import create_authority

pytestmark = pytest.mark.slow

NOW = datetime.now(UTC)
OPENSSL = shutil.which("openssl")
Names = x509.SubjectAlternativeName


@pytest.fixture
def authority(tmp_path):
    return create_authority(tmp_path / "tls", now=NOW)


def certificate(path):
    return x509.load_pem_x509_certificate(path.read_bytes())


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_no_certificate_lives_longer_than_thirty_days(authority):
    for path in (authority.ca, authority.leaf):
        found = certificate(path)
        assert found.not_valid_after_utc - found.not_valid_before_utc <= timedelta(days=30)
        assert found.not_valid_before_utc <= NOW <= found.not_valid_after_utc


def test_a_key_is_readable_by_its_owner_alone_and_the_authority_s_is_nowhere(authority):
    folder = authority.leaf.parent
    assert mode(folder) == 0o700
    assert mode(authority.leaf) == 0o600
    keys = [path for path in folder.iterdir() if b"PRIVATE KEY" in path.read_bytes()]
    assert keys == [authority.leaf]
    assert authority.leaf.read_bytes().count(b"PRIVATE KEY") == 2  # one key: its begin and its end
    own = load_pem_private_key(authority.leaf.read_bytes(), password=None).public_key()
    assert own == certificate(authority.leaf).public_key() != certificate(authority.ca).public_key()


def test_the_authority_is_good_for_the_endpoint_s_names_alone(authority):
    constraints = certificate(authority.ca).extensions.get_extension_for_class(x509.NameConstraints)
    assert constraints.critical
    assert [str(each.value) for each in constraints.value.permitted_subtrees] == [
        "localhost",
        "dfs.fabric.microsoft.com",
        "blob.fabric.microsoft.com",
        "table.fabric.microsoft.com",
        "api.fabric.microsoft.com",
        "login.microsoftonline.com",
        "login.microsoft.com",
        "127.0.0.1/32",
        "::1/128",
    ]


@pytest.mark.skipif(OPENSSL is None, reason="needs openssl")
@pytest.mark.parametrize("name", ["onelake.dfs.fabric.microsoft.com", "example.org", "127.0.0.2", "microsoft.com"])
def test_the_authority_cannot_sign_for_other_names(tmp_path, name, monkeypatch):
    """OpenSSL refuses a certificate outside the constraints, independent of its signer."""
    value = x509.IPAddress(ip_address(name)) if name[0].isdigit() else x509.DNSName(name)
    monkeypatch.setattr(module.x509, "SubjectAlternativeName", lambda _: Names([value]))
    made = create_authority(tmp_path)
    words = ["verify", "-x509_strict", "-CAfile", made.ca, made.leaf]
    done = subprocess.run([OPENSSL, *words], capture_output=True, text=True, check=False)
    is_own = name.startswith("onelake.")
    assert (done.returncode == 0) is is_own
    assert is_own or "permitted subtree violation" in done.stderr + done.stdout


def test_a_client_without_the_authority_does_not_trust_the_emulator():
    other = ssl.create_default_context()
    trustme.CA().configure_trust(other)
    with (
        running(Response()) as emulator,
        connected(emulator.https_port) as plain,
        pytest.raises(ssl.SSLError),
    ):
        other.wrap_socket(plain, server_hostname="localhost")


@pytest.mark.skipif(OPENSSL is None, reason="needs openssl")
def test_old_tls_is_refused():
    with running(Response()) as emulator:
        words = ["s_client", "-connect", f"127.0.0.1:{emulator.https_port}", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"]
        done = subprocess.run([OPENSSL, *words], input=b"", capture_output=True, check=False, timeout=20)
    assert done.returncode != 0


def test_every_start_has_a_new_authority(authority):
    first = authority.leaf.read_bytes()
    authority.leaf.chmod(0o644)
    authority.leaf.parent.chmod(0o755)
    again = create_authority(authority.leaf.parent)
    assert again == authority
    assert authority.leaf.read_bytes() != first
    assert (mode(authority.leaf), mode(authority.leaf.parent)) == (0o600, 0o700)


def test_the_certificate_names_the_listening_address(tmp_path):
    def addresses(listen):
        leaf = certificate(create_authority(tmp_path / "tls", listen).leaf)
        named = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return {str(each) for each in named.get_values_for_type(x509.IPAddress)}

    assert addresses("192.0.2.7") == {"127.0.0.1", "::1", "192.0.2.7"}
    assert addresses("0.0.0.0") == {"127.0.0.1", "::1"}  # noqa: S104 - named, not bound


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")  # an old root
def test_the_bundle_holds_the_usual_roots_and_no_other_store_s_authority(authority, tmp_path, monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.bundle))  # as in a shell of another STORE
    inner = create_authority(tmp_path / "inner")
    ours = sum(root.count(b"mirror-engine local authority") // 2 for root in roots(inner.bundle))  # issuer and subject
    assert ours == 1
    assert len(roots(inner.bundle)) == len(roots(authority.bundle)) > 1
    javas = {each.certificate for each in pkcs12.load_pkcs12(inner.java.read_bytes(), None).additional_certs}
    assert len(javas) == len(roots(inner.bundle))
    assert certificate(inner.ca) in javas


def test_a_root_that_cryptography_does_not_read_is_left_out_of_java_s_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_machine_roots", lambda: [b"\x30\x00"])
    java = create_authority(tmp_path).java.read_bytes()
    assert len(pkcs12.load_pkcs12(java, None).additional_certs) == 1


def roots(bundle):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(bundle)
    return context.get_ca_certs(binary_form=True)
