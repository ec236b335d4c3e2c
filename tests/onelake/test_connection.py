"""Where one may listen: beyond the loopback only on purpose and with a token."""

from __future__ import annotations

import pytest

from mirror_engine.errors import UsageError
from mirror_engine.onelake.connection import Listening

TOKEN = "0123456789abcdef"  # noqa: S105 - a test's own


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1"])
def test_the_loopback_needs_neither_intention_nor_token(address) -> None:
    assert Listening(address).token is None


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "8.8.8.8", "::ffff:192.0.2.1", "fe80::1"])  # noqa: S104
def test_every_other_address_needs_both(address) -> None:
    with pytest.raises(UsageError, match="others could reach"):
        Listening(address)
    with pytest.raises(UsageError, match="others could reach"):
        Listening(address, token=TOKEN)
    with pytest.raises(UsageError, match="requires a token"):
        Listening(address, allow_remote=True)
    with pytest.raises(UsageError, match="requires a token"):
        Listening(address, allow_remote=True, token=TOKEN[1:])
    assert Listening(address, allow_remote=True, token=TOKEN).address == address


@pytest.mark.parametrize("address", ["", "localhost", "example.com", "127.0.0.1:80", "0", "127.1", "*"])
def test_what_is_no_address_is_refused(address) -> None:
    with pytest.raises(UsageError, match="not an IP address"):
        Listening(address, allow_remote=True, token=TOKEN)


@pytest.mark.parametrize("token", ["with a space in it", "täglich-anderer-ton", "line\nline-line-line", ""])
def test_a_token_must_fit_in_a_header(token) -> None:
    with pytest.raises(UsageError, match="token"):
        Listening("127.0.0.1", token=token)


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "[::1]"),
        ("0.0.0.0", "127.0.0.1"),  # noqa: S104 - named, not bound
        ("::", "[::1]"),
        ("192.0.2.1", "192.0.2.1"),
    ],
)
def test_programs_here_reach_it_by_an_address_that_is_one(address, reached) -> None:
    assert Listening(address, allow_remote=True, token=TOKEN).reached_at == reached
