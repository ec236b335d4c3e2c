"""Table folders of stores that have none (S3, GCS, Blob): a recreated one is known by its files."""

from __future__ import annotations

import shutil

import pytest
from shop import Shop, name, row

from mirror_engine import RunResult
from mirror_engine.events import TableDropped


@pytest.fixture
def three_in_store(tmp_path):
    """Three applied files, of which the newest is still in the folder."""
    shop = Shop(tmp_path)
    shop.land(1, 2, 3)
    assert sync(shop) is RunResult.CAUGHT_UP
    assert {file.name for file in folder(shop).glob("0*")} == {name(3)}
    shop.events.clear()
    return shop


def sync(shop):
    with shop.mirror(storage=shop.without_folders()) as mirror:
        result = mirror.sync().result
        assert mirror.sync().commits == 0
    return result


def folder(shop):
    return shop.publisher.path / "Orders"


def recreate(shop, *numbers, first=8):
    """Drop the folder and make it again between two scans, with these files."""
    shutil.rmtree(folder(shop))
    orders = shop.orders()
    for offset, number in enumerate(numbers):
        orders.insert(row(first + offset), name=name(number))


@pytest.mark.slow
@pytest.mark.parametrize("numbers", [[1], [1, 2], [1, 2, 3], [1, 2, 3, 4]])
def test_folder_that_begins_again_is_recreated(three_in_store, numbers):
    recreate(three_in_store, *numbers)
    sync(three_in_store)
    assert three_in_store.ids() == [*range(8, 8 + len(numbers))]
    assert len(three_in_store.heard(TableDropped)) == 1


@pytest.mark.slow
def test_one_file_alone_is_enough(tmp_path):
    shop = Shop(tmp_path)
    shop.orders().insert(row(1))
    sync(shop)
    recreate(shop, 1)
    sync(shop)
    assert shop.ids() == [8]


@pytest.mark.slow
def test_numbers_that_begin_anywhere_may_begin_again_anywhere(tmp_path):
    shop = Shop(tmp_path, first_file="lowest")
    shop.land(5, 6)
    sync(shop)
    recreate(shop, 5)
    sync(shop)
    assert shop.ids() == [8]


@pytest.mark.slow
def test_lost_ledger_knows_a_recreated_folder(three_in_store):
    recreate(three_in_store, 1, 2)
    three_in_store.lose_ledger()
    sync(three_in_store)
    assert three_in_store.ids() == [8, 9]


def land_again(shop, number, *ids):
    shop.orders().insert(*map(row, ids), name=name(number))


@pytest.mark.slow
@pytest.mark.parametrize(
    "act",
    {
        "the next file": lambda shop: land_again(shop, 4, 4),
        "an applied number, while the newest is there": lambda shop: land_again(shop, 1, 8),
        "the newest is gone": lambda shop: (folder(shop) / name(3)).unlink(),
        "the newest is gone, and another number is back": lambda shop: (
            (folder(shop) / name(3)).unlink(),
            land_again(shop, 2, 8),
        ),
        "the newest was overwritten": lambda shop: land_again(shop, 3, 8),
        "other metadata": lambda shop: shop.orders().land_metadata(b'{"keyColumns":["id"] }'),
    }.items(),
    ids=lambda act: act[0],
)
def test_folder_that_goes_on_is_the_same(three_in_store, act):
    act[1](three_in_store)
    sync(three_in_store)
    assert three_in_store.heard(TableDropped) == []
    assert three_in_store.ids()[:3] == [1, 2, 3]


@pytest.mark.slow
def test_equal_first_file_recreates_if_the_newest_is_gone(three_in_store):
    first = (folder(three_in_store) / "_FilesReadyToDelete" / name(1)).read_bytes()
    shutil.rmtree(folder(three_in_store))
    three_in_store.orders().land(first, name=name(1))
    sync(three_in_store)
    assert three_in_store.ids() == [1]


@pytest.mark.slow
def test_applied_files_that_are_back_drop_nothing(three_in_store):
    archive = folder(three_in_store) / "_FilesReadyToDelete"
    content = {number: (archive / name(number)).read_bytes() for number in (1, 2)}
    content[3] = (folder(three_in_store) / name(3)).read_bytes()
    for number, found in content.items():
        (folder(three_in_store) / name(number)).write_bytes(found)
        (folder(three_in_store) / name(number)).touch()
    sync(three_in_store)
    assert three_in_store.heard(TableDropped) == []
    assert three_in_store.ids() == [1, 2, 3]
    assert three_in_store.said() == []


@pytest.mark.slow
def test_time_ordered_files_cannot_begin_again(tmp_path):
    shop = Shop(tmp_path)
    shop.orders(strategy="LastUpdateTimeFileDetection").insert(row(1), name="a.parquet")
    sync(shop)
    shutil.rmtree(folder(shop))
    for number, file in ((2, name(1)), (3, "b.parquet")):
        shop.orders(strategy="LastUpdateTimeFileDetection").insert(row(number), name=file)
    sync(shop)
    assert (shop.ids(), shop.heard(TableDropped)) == ([1, 2, 3], [])


@pytest.mark.slow
def test_emptied_folder_is_missing(three_in_store):
    shutil.rmtree(folder(three_in_store))
    folder(three_in_store).mkdir()
    three_in_store.orders("Other")
    sync(three_in_store)
    assert len(three_in_store.heard(TableDropped)) == 1


@pytest.mark.usefixtures("one_attempt")
def test_zone_without_files_drops_nothing(three_in_store):
    shutil.rmtree(folder(three_in_store))
    sync(three_in_store)
    assert three_in_store.heard(TableDropped) == []
