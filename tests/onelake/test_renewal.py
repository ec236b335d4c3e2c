"""A server that outlives its authority."""

from __future__ import annotations

import ssl
import time
from datetime import timedelta

from wire import connected

from mirror_engine.onelake import authority as authorities
from mirror_engine.onelake import authority as renewal
from mirror_engine.onelake.serving import Server, ServerPlan


def certificate_of(port: int, ca: str) -> bytes | None:
    """The certificate that a client which trusts `ca` is shown; None where it does not trust it."""
    try:
        context = ssl.create_default_context(cafile=ca)
        with context.wrap_socket(connected(port), server_hostname="localhost") as secure:
            return secure.getpeercert(binary_form=True)
    except ssl.SSLError:  # the files are being replaced
        return None


def test_a_certificate_that_ends_soon_is_replaced_while_the_server_runs(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(renewal, "LOOK_SECONDS", 0.2)
    with Server(ServerPlan(tmp_path, has_engines=False), tell=print) as server:
        port = int(server.card.https.rpartition(":")[2])
        ca = server.card.environment["NODE_EXTRA_CA_CERTS"]
        first = certificate_of(port, ca)
        assert first
        time.sleep(0.5)
        assert certificate_of(port, ca) == first  # a good one is kept
        monkeypatch.setattr(authorities, "MIN_LEFT", timedelta(days=8))
        ends = time.monotonic() + 10
        while (shown := certificate_of(port, ca)) in {first, None} and time.monotonic() < ends:
            time.sleep(0.05)
        assert shown not in {first, None}


def test_a_renewal_that_fails_is_told_and_tried_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(renewal, "LOOK_SECONDS", 0.02)
    told: list[str] = []
    with Server(ServerPlan(tmp_path, has_engines=False), tell=told.append):
        monkeypatch.setattr(renewal, "authority", _no_space)
        ends = time.monotonic() + 10
        while len(told) < 2 and time.monotonic() < ends:
            time.sleep(0.02)
    assert told[:2] == ["the certificate was not renewed: No space left on device"] * 2


def _no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")
