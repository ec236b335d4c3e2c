"""deltalake on OneLake's real name, unmodified."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

VERSIONS = [[0, 1, 2], [0, 1, 2, 3, 4], [9]]


@pytest.fixture
def delta(client):
    return client("delta")


@pytest.mark.parametrize("kind", ["secret", "token"])
def test_write_append_overwrite_read_by_abfss(delta, table, kind):
    assert delta.round_trip(table, kind) == VERSIONS


@pytest.mark.parametrize("kind", ["key", "none"])
@pytest.mark.parametrize("prefix", ["", "/onelake"])
def test_write_append_overwrite_read_by_http(delta, table, served, kind, prefix):
    assert delta.round_trip(table, kind, served.connection.http + prefix) == VERSIONS


def test_two_racing_writers_lose_nothing(delta, table):
    assert delta.race(table, 2, 5) == {"version": 10, "ids": list(range(11))}


def test_vacuum_is_a_batch_and_refused(delta, refused, table):
    with refused("Either WorkspaceId or ArtifactId are missing in the request"):
        delta.vacuum(table)


@pytest.mark.usefixtures("accepts_batches")
def test_vacuum_passes_where_a_switch_says_so(delta, table, landing_zone):
    assert delta.vacuum(table) == 1
    left = landing_zone.parents[1] / "Tables/dbo" / table
    assert len(list(left.glob("*.parquet"))) == 1
