"""Archived files do not expire while a help says to rebuild their table from them (LZ-8.3)."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import Mock

import pyarrow as pa
import pytest
from shop import NO_STOP, Shop, cycles, name, row

from mirror_engine.errors import StorageUnavailable, TableDamaged
from mirror_engine.landing_zone.diagnostics import CATALOG, Severity, Trait

pytestmark = pytest.mark.usefixtures("one_attempt")
DAY = 86_400.0


@pytest.fixture
def three_applied(tmp_path):
    shop = Shop(tmp_path)
    shop.land(1, 2, 3)
    shop.sync()
    return shop


def unread(shop, monkeypatch, error):
    """No look at a log succeeds; gives what ends that."""
    patch = monkeypatch.context()
    writer = patch.__enter__()
    for reads in ("snapshot", "latest_external_change"):
        writer.setattr(shop.writer, reads, Mock(side_effect=error))
    return lambda: patch.__exit__(None, None, None)


def damaged(shop, monkeypatch):
    """ME081: its Delta log cannot be read; it is restored."""
    return unread(shop, monkeypatch, TableDamaged("dbo/Orders", "commit 1 is cut off"))


def of_another_type(shop, _):
    """ME044: a rejected file, deleted later."""
    orders = shop.publisher.table("Orders", keys=["id"], types={"id": pa.string(), "city": pa.string()})
    orders.insert({"id": "x", "city": "Linz"}, name=name(4))
    return lambda: orders.remove(name(4))


def with_broken_metadata(shop, _):
    """ME010: a halt without a word of a rebuild, but how it ends is not known."""
    path = shop.publisher.path / "Orders/_metadata.json"
    whole = path.read_bytes()
    path.write_bytes(b"{")
    return lambda: path.write_bytes(whole)


def changed_by_another(shop, _):
    """ME080: another program added a row."""
    shop.writer.write_as_another("dbo/Orders", [row(9)])
    return lambda: shop.mirror().rebuild(replay=True)


def overwritten(shop, _):
    """ME025: a file was overwritten before it was read."""
    orders = shop.orders()
    orders.insert(row(5), name=name(5))
    shop.sync()
    (shop.publisher.path / "Orders" / name(5)).unlink()
    orders.insert(row(6), name=name(5))
    orders.insert(row(4), name=name(4))
    return lambda: shop.mirror().rebuild(replay=True)


def removed(shop, _):
    """ME069: its Delta table was removed by others."""
    shop.writer.drop("dbo/Orders", lambda: None)
    return lambda: shop.mirror().rebuild(["Orders"], replay=True)


def archived(shop):
    return {each.name for each in Path(shop.publisher.path).glob("Orders/_FilesReadyToDelete/*.parquet")}


STANDING = [damaged, of_another_type, with_broken_metadata, changed_by_another, overwritten, removed]


def check_archive_expires(shop):
    shop.sync()
    shop.now += 8 * DAY
    shop.sync()
    assert archived(shop) == set()


@pytest.mark.slow
@pytest.mark.parametrize("begins", STANDING, ids=lambda begins: begins.__name__)
def test_archive_expires_only_once_the_help_is_over(three_applied, monkeypatch, begins):
    ends, needed = begins(three_applied, monkeypatch), archived(three_applied)
    assert needed == {name(1), name(2)}
    for _ in range(3):
        three_applied.now += 8 * DAY
        three_applied.sync()
        assert archived(three_applied) >= needed
    ends()
    check_archive_expires(three_applied)


def test_halt_in_the_same_cycle_keeps_what_has_just_expired(three_applied, monkeypatch):
    """A file is rejected by the batch of the cycle in which others expire."""
    of_another_type(three_applied, monkeypatch)
    three_applied.now += 8 * DAY
    with three_applied.engine() as running:
        running.cycle(NO_STOP)
    assert archived(three_applied) == {name(1), name(2)}


def test_kept_archive_costs_no_cycle(three_applied, monkeypatch):
    """An expired file that is kept does not have its table cleaned in each cycle."""
    with_broken_metadata(three_applied, monkeypatch)
    three_applied.now += 8 * DAY
    cleaned = []
    with three_applied.engine() as running:
        real = running._janitor.clean
        monkeypatch.setattr(running._janitor, "clean", lambda *given, **how: cleaned.append(1) or real(*given, **how))
        cycles(running, 5)
    assert len(cleaned) <= 2


def test_every_help_that_says_to_rebuild_keeps_the_archive():
    says = {code for code, each in CATALOG.items() if "rebuild" in each.help and each.severity is not Severity.ERROR}
    assert says
    assert [code for code in says if Trait.REBUILD not in CATALOG[code].traits] == []


def test_removed_table_is_said_before_and_after_the_sync(three_applied):
    """ME069: the missing number is an effect, whose own help would lose the rows."""
    three_applied.writer.drop("dbo/Orders", lambda: None)
    for _ in range(2):
        status = three_applied.status()
        assert [found.code for found, _ in status.diagnostics] == ["ME019", "ME069"]
        assert "rebuild --replay" in status.help(engine_running=False)
        (found,) = three_applied.sync().tables
        assert "rebuild --replay" in found.help
        assert "land it" not in found.help


@pytest.mark.slow
@pytest.mark.parametrize("begins", [damaged, changed_by_another], ids=lambda begins: begins.__name__)
def test_archive_stays_while_the_log_is_unreadable(three_applied, monkeypatch, begins):
    """Of its log nothing is known for a while; whether it stands, the next look says."""
    ends = begins(three_applied, monkeypatch)
    three_applied.now += 8 * DAY
    three_applied.sync()
    is_read = unread(three_applied, monkeypatch, StorageUnavailable("the store is busy"))
    for _ in range(2):
        three_applied.now += DAY
        three_applied.sync()
    is_read()
    assert archived(three_applied) == {name(1), name(2)}
    ends()
    check_archive_expires(three_applied)
