"""@azure/storage-file-datalake under Node, unmodified."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture
def datalake(node, client):
    proxied = node(PROGRAMS / "proxied.mjs")
    return client("node", "--import", f"file://{proxied}", node(PROGRAMS / "datalake.mjs"))


def expected(served, table):
    name = f"{served.connection.item_id}/Files/LandingZone/{table}/a b=ü.bin"
    return {
        "made": [True, False],
        "content": "0123456789",
        "range": "3456",
        "listed": [[name, 10]],
        "size": 10,
        "exists": [False, True],
        "gone": True,
    }


@pytest.mark.parametrize("kind", ["default", "secret", "az"])
def test_create_upload_move_read_list_delete_with_a_token(datalake, served, table, kind):
    assert datalake.roundTrip(table, "", kind) == expected(served, table)


@pytest.mark.parametrize("kind", ["key", "SAS", "none"])
def test_the_same_by_http_under_onelake(datalake, served, table, kind):
    assert datalake.roundTrip(table, f"{served.connection.http}/onelake", kind) == expected(served, table)


def test_a_token_by_http_is_refused_by_the_library(datalake, refused, served, table):
    with refused("Bearer token authentication is not permitted for non-TLS protected (non-https) URLs"):
        datalake.roundTrip(table, f"{served.connection.http}/onelake", "default")


def test_without_onelake_the_library_takes_the_workspace_for_an_account(datalake, refused, served, table):
    with refused("404"):
        datalake.roundTrip(table, served.connection.http, "none")


def test_lists_in_pages(datalake, table):
    assert datalake.pages(table, 8) == [3, 3, 2]


def test_uploads_what_is_large_in_several_appends_at_once(datalake, table, landing_zone):
    size = 20 << 20
    assert datalake.uploadLarge(table, size) == size
    assert (landing_zone / table / "large.bin").read_bytes() == b"x" * size


def test_fetch_passes_with_a_preloaded_proxy(datalake, table, landing_zone):
    assert datalake.fetched(table) == 201
    assert (landing_zone / table).is_dir()
