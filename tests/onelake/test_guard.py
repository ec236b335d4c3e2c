"""Who may speak to the emulator, and where it listens: its own names, no foreign pages, a token where one is set."""

from __future__ import annotations

import base64
import json
from urllib.parse import urlencode

import pytest
from raw_http import ONELAKE, connected, exchange, request, rest_of, running, status_of, trusting
from starlette.responses import Response

from mirror_engine.errors import UsageError
from mirror_engine.onelake.connection import Listening
from mirror_engine.onelake.entra import access_token, entra_app
from mirror_engine.onelake.hosts import LOGINS, PassedHost, host_of

SECRET = "let-me-in-at-once"  # noqa: S105 - a test's own


async def services(scope, receive, send):
    """Entra behind its host name, and 204 behind all others."""
    app = entra_app(SECRET) if host_of(scope["headers"]) in LOGINS else Response(status_code=204)
    await app(scope, receive, send)


@pytest.fixture(scope="module")
def unlocked():
    with running(services) as started:
        yield started


@pytest.fixture(scope="module")
def locked():
    with running(services, token=SECRET) as started:
        yield started


@pytest.mark.parametrize("host", ["127.0.0.2:1", "emulator", "localhost"])
def test_address_and_names_of_the_listener_are_served(host):
    with running(services, address="127.0.0.2", names=("emulator",)) as started:
        answer = exchange(started.http_port, request(host=host))
        assert status_of(answer) == 204
        assert status_of(exchange(started.http_port, request(host="127.0.0.3"))) == 421


def posted(origin):
    return request("POST", "/v1/workspaces", "localhost:1", f"Origin: {origin}")


FOREIGN = ("evil.example", ONELAKE, "localhost@evil.example", "localhost.x")


@pytest.mark.parametrize(
    ("asked", "status"),
    [
        *((request(host=host), 204) for host in ("localhost", "localhost:8080", "127.0.0.1", "[::1]:1", "LocalHost")),
        (request(host=ONELAKE), 204),
        # DNS rebinding: a page of evil.example must not read the store
        *((request(host=host), 421) for host in ("evil.example:80", f"{ONELAKE}.evil.example", "127.0.0.1.evil.x", "")),
        # one host
        (request("GET", "/", "localhost", "Host: localhost"), 400),
        (b"GET / HTTP/1.0\r\n\r\n", 400),
        # a target's own host is the request's
        *((request("GET", f"http://{at}/x"), 204) for at in ("localhost", "LOCALHOST:80", "a:b@localhost")),
        *((request("GET", f"http://{at}/x"), 400) for at in FOREIGN),
        # pages of other sites
        (posted("http://localhost:1"), 204),
        *((posted(at), 403) for at in ("http://evil.example", "null", "http://localhost:2", "http://[", "")),
    ],
)
def test_requests_of_foreign_hosts_and_pages_are_rejected(unlocked, asked, status):
    assert status_of(exchange(unlocked.http_port, asked)) == status


def said(locked, *headers, host="localhost"):
    return status_of(exchange(locked.http_port, request("GET", "/", host, *headers)))


@pytest.mark.parametrize(
    "header",
    [
        "X: nothing",
        "Authorization: Bearer",
        f"Authorization: Bearer {SECRET}x",
        f"Authorization: bearer {SECRET[:-1]}",
        f"Authorization: SharedKey onelake:{SECRET}",
        f"Authorization: {SECRET}",
        "Authorization: Basic ####",
        "Authorization: Digest " + base64.b64encode(f"x:{SECRET}".encode()).decode(),
        "Authorization: Basic " + base64.b64encode(b"x:").decode(),
        "Authorization: Bearer \xff\xfe",
    ],
)
@pytest.mark.parametrize("host", ["localhost", ONELAKE, "api.fabric.microsoft.com"])
def test_requests_without_the_token_are_rejected(locked, header, host):
    assert said(locked, header, host=host) == 401


def test_the_token_is_accepted_as_bearer_and_as_basic_password(locked):
    password = base64.b64encode(f"anybody:{SECRET}".encode()).decode()
    assert said(locked, f"Authorization: Bearer {SECRET}") == 204
    assert said(locked, f"Authorization: Basic {password}") == 204


@pytest.mark.slow
def test_entra_gives_a_token_that_opens_for_the_secret_alone(locked):
    def token_for(secret):
        form = urlencode({"grant_type": "client_credentials", "client_secret": secret}).encode()
        asked = request("POST", "/t/oauth2/v2.0/token", LOGINS[0], f"Content-Length: {len(form)}", body=form)
        answer = exchange(locked.http_port, asked)
        return status_of(answer), json.loads(answer.partition(b"\r\n\r\n")[2])

    status, reported = token_for(SECRET)
    assert status == 200
    issued = reported["access_token"]
    assert said(locked, f"Authorization: Bearer {issued}") == 204
    head, _, signature = issued.rpartition(".")
    others = (access_token("t", "c", "a", 0, secret=other) for other in (None, "another emulator's"))
    signatures = ("", f"{signature[:-8]}AAAAAAAA", "é")
    for forged in (f"{head}x.{signature}", signature, *(f"{head}.{each}" for each in signatures), *others):
        assert said(locked, f"Authorization: Bearer {forged}") == 401
    status, reported = token_for("x")
    assert (status, reported["error"], "access_token" in reported) == (401, "invalid_client", False)


def test_entra_s_name_opens_nothing_but_entra(locked):
    asked = request("GET", "/ws/item/Files/x", LOGINS[0])
    assert status_of(exchange(locked.http_port, asked)) == 404


def test_beyond_the_loopback_hosts_may_have_any_name_and_http_stays_behind():
    """The address is no other's: Linux takes all of 127/8 for its own."""
    with running(services, address="0.0.0.0", allow_remote=True, token=SECRET) as emulator:  # noqa: S104 - what is tested
        with trusting(checks_name=False).wrap_socket(connected(emulator.https_port, "127.0.0.2")) as secure:
            secure.sendall(request("GET", "/", "builder", f"Authorization: Bearer {SECRET}"))
            assert status_of(rest_of(secure)) == 204
        connected(emulator.proxy_port, "127.0.0.2").close()
        with pytest.raises(ConnectionRefusedError):
            connected(emulator.http_port, "127.0.0.2")


TOKEN = "0123456789abcdef"  # noqa: S105 - a test's own
REACHED = {
    "0.0.0.0": "127.0.0.1",  # noqa: S104 - named, not bound
    "::": "[::1]",
    "192.0.2.1": "192.0.2.1",
    "::ffff:192.0.2.1": "[::ffff:192.0.2.1]",
    "fe80::1": "[fe80::1]",
}
NO_ADDRESSES = ("", "localhost", "127.0.0.1:80", "0", "127.1", "*")
NO_HOST_NAMES = ("", "two words", "-x", "a_b", "*.example.org", "a" * 64, "example.org:443")
NO_TOKENS = ("with a space in it", "täglich-anderer-ton", "line\nline-line-line", "")
ALLOWED = {"allow_remote": True, "token": TOKEN}


def test_loopback_needs_no_option_and_other_addresses_need_two():
    for address, reached in (("127.0.0.1", "127.0.0.1"), ("127.8.8.8", "127.8.8.8"), ("::1", "[::1]")):
        assert Listening(address).reached_at == reached
    for address, reached in REACHED.items():
        assert Listening(address, **ALLOWED).reached_at == reached


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        *(({"address": each, "token": token}, "others could reach") for each in REACHED for token in (None, TOKEN)),
        *(({"address": each, "allow_remote": True}, "requires a token") for each in REACHED),
        *(({"address": each, "allow_remote": True, "token": TOKEN[1:]}, "requires a token") for each in REACHED),
        *(({"address": each, **ALLOWED}, "not an IP address") for each in NO_ADDRESSES),
        *(({"token": each}, "--token") for each in NO_TOKENS),
        *(({"names": (each,)}, "not a host name") for each in NO_HOST_NAMES),
        ({"address": "192.0.2.1", **ALLOWED, "pass_through": [PassedHost("localhost")]}, "--pass-through"),
    ],
)
def test_unsafe_or_unusable_place_to_listen_is_refused(options, reason):
    with pytest.raises(UsageError, match=reason):
        Listening(**options)
