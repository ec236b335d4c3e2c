"""Where one may listen: beyond the loopback only on purpose and with a token."""

from __future__ import annotations

import pytest

from mirror_engine.errors import UsageError
from mirror_engine.onelake.connection import Listening

TOKEN = "0123456789abcdef"  # noqa: S105 - a test's own


@pytest.mark.parametrize(
    ("address", "reached"), [("127.0.0.1", "127.0.0.1"), ("127.8.8.8", "127.8.8.8"), ("::1", "[::1]")]
)
def test_the_loopback_needs_neither_intention_nor_token(address, reached):
    assert Listening(address).reached_at == reached


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        ("0.0.0.0", "127.0.0.1"),  # noqa: S104 - named, not bound
        ("::", "[::1]"),
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "[::ffff:192.0.2.1]"),
        ("fe80::1", "[fe80::1]"),
    ],
)
def test_every_other_address_needs_both(address, reached):
    for options in ({}, {"token": TOKEN}):
        with pytest.raises(UsageError, match="others could reach"):
            Listening(address, **options)
    for token in (None, TOKEN[1:]):
        with pytest.raises(UsageError, match="requires a token"):
            Listening(address, allow_remote=True, token=token)
    assert Listening(address, allow_remote=True, token=TOKEN).reached_at == reached


@pytest.mark.parametrize("address", ["", "localhost", "127.0.0.1:80", "0", "127.1", "*"])
def test_what_is_no_address_is_refused(address):
    with pytest.raises(UsageError, match="not an IP address"):
        Listening(address, allow_remote=True, token=TOKEN)


@pytest.mark.parametrize("token", ["with a space in it", "täglich-anderer-ton", "line\nline-line-line", ""])
def test_a_token_must_fit_in_a_header(token):
    with pytest.raises(UsageError, match="token"):
        Listening("127.0.0.1", token=token)
