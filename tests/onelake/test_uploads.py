"""Uploads by create, append and flush, seen by a running engine at every moment: nothing is lost or halted."""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from raw_http import until
from seed import by_night
from zone_client import ABSENT_ONLY, ZoneClient, matching, refused

from mirror_engine.config import Config
from mirror_engine.landing_zone.detection import numbered_name
from mirror_engine.mirror import Mirror
from mirror_engine.onelake.conditions import NONE
from mirror_engine.onelake.engine_pool import EnginePool
from mirror_engine.onelake.engine_view import EngineView
from mirror_engine.onelake.errors import StorageErrorCode
from mirror_engine.onelake.options import ServerPlan
from mirror_engine.onelake.store import LocalStore
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter

UPLOADS = by_night(60, 200)  # of one table, alone or by twenty publishers
pytestmark = pytest.mark.slow

METADATA = json.dumps({"keyColumns": ["id"]}).encode()


def content_of(*ids):
    """A change file that inserts rows."""
    table = pa.table({"id": pa.array(ids, pa.int64()), "__rowMarker__": pa.array([0] * len(ids), pa.int32())})
    pq.write_table(table, file := io.BytesIO())
    return file.getvalue()


class Emulator(ZoneClient):
    """A lake with an engine on its only item."""

    def __init__(self, folder, poll_interval_seconds=0.02):
        super().__init__(LocalStore(folder), clock=time.time_ns)
        self.zone = folder / "ws/db/Files/LandingZone"
        self.writer = MemoryDeltaWriter()
        config = Config(poll_interval_seconds=poll_interval_seconds)
        plan = ServerPlan(folder, options=self.options, config=config, new_writer=lambda _: self.writer)
        self.item = self.at("").item
        self.pool = EnginePool(plan, self.items)
        self.pool.start_all()

    def append_and_flush(self, path, content, position=0, conditions=NONE):
        self.append(path, position, content)
        self.flush(path, position + len(content), conditions)

    def upload(self, path, content):
        """As `upload_data(overwrite=True)` of Azure's library."""
        created = self.create(path)
        half = len(content) // 2
        self.append(path, 0, content[:half])
        self.append_and_flush(path, content[half:], half, matching(created))

    def publish(self, table, count):
        self.upload(f"{table}/_metadata.json", METADATA)
        for number in range(1, count + 1):
            self.upload(f"{table}/{numbered_name(number)}", content_of(number))

    def poll(self):
        assert self.pool.poll(self.item)

    def said(self):
        """All codes about the item, and what keeps it from being caught up."""
        with self.pool.shown()[0].view() as mirror:
            found = mirror._status()
        of_tables = [each for table in found.tables for each in table.diagnostics]
        codes = [each.code for each, _ in (*found.diagnostics, *of_tables)]
        return codes, [str(each) for each in self.pool.unmet_conditions(self.item)]

    def rows(self, table):
        found = self.writer.rows(f"dbo/{table}")
        return [] if found is None else sorted(found["id"].to_pylist())

    def until_applied(self, *tables, count):
        until(lambda: all(self.rows(table) == [*range(1, count + 1)] for table in tables), self.said)
        assert self.said() == ([], [])


@pytest.fixture
def upload_lake(tmp_path):
    emulator = Emulator(tmp_path)
    yield emulator
    emulator.pool.end()


def test_uploads_seen_between_create_and_flush_lose_nothing(upload_lake):
    upload_lake.upload("T/_metadata.json", METADATA)
    for number in (2, 1):  # the first is pending, as 1 is missing
        path = f"T/{numbered_name(number)}"
        upload_lake.create(path)
        upload_lake.poll()
        upload_lake.append(path, 0, content_of(number))
        upload_lake.poll()
        upload_lake.append_and_flush(path, content_of(number))
        upload_lake.poll()
    upload_lake.until_applied("T", count=2)


def test_flush_that_adds_to_a_pending_file_is_told_as_growth(upload_lake):
    upload_lake.upload("T/_metadata.json", METADATA)
    path, content = f"T/{numbered_name(2)}", content_of(2)
    upload_lake.upload(path, content[:50])
    upload_lake.poll()
    upload_lake.append_and_flush(path, content[50:], 50)
    upload_lake.poll()
    upload_lake.upload(f"T/{numbered_name(1)}", content_of(1))
    until(lambda: upload_lake.rows("T") == [1, 2], upload_lake.said)
    assert upload_lake.said() == (["ME071"], [])


def test_rejected_file_that_a_flush_completes_stays_rejected(upload_lake):
    """LZ-3.11; a file that is created anew goes on."""
    upload_lake.upload("T/_metadata.json", METADATA)
    path, content = f"T/{numbered_name(1)}", content_of(1)
    upload_lake.upload(path, content[:50])
    until(lambda: upload_lake.said()[0] == ["ME024"], upload_lake.said)
    upload_lake.append_and_flush(path, content[50:], 50)
    until(lambda: upload_lake.said()[0] == ["ME024", "ME027"], upload_lake.said)
    assert len(upload_lake.said()[1]) == 1
    upload_lake.upload(path, content)
    upload_lake.until_applied("T", count=1)


def test_flush_that_fails_keeps_the_history_of_its_file(upload_lake, monkeypatch):
    path, content = f"T/{numbered_name(1)}", content_of(1)
    upload_lake.upload(path, content[:50])
    history, item = upload_lake.lake.options.history, upload_lake.item.path
    view = EngineView(upload_lake.zone.parents[1], history, item)
    before = view.stat(f"Files/LandingZone/{path}")
    assert before.continues
    with monkeypatch.context() as patched:
        patched.setattr(upload_lake.lake.storage, "publish", refuse)
        with pytest.raises(OSError, match="full"):
            upload_lake.append_and_flush(path, content[50:], 50)
    assert view.stat(f"Files/LandingZone/{path}") == before
    upload_lake.append_and_flush(path, content[50:], 50)
    after = view.stat(f"Files/LandingZone/{path}")
    assert after.continues == (*before.continues, before.identity)
    assert history.of("", replace(before, continues=())).continues == ()


def refuse(*_):
    raise OSError("full")


def test_file_that_stays_empty_for_a_minute_halts(upload_lake):
    """LZ-3.10."""
    upload_lake.upload("T/_metadata.json", METADATA)
    upload_lake.create(f"T/{numbered_name(1)}")
    upload_lake.poll()
    assert upload_lake.said()[0] == []
    os.utime(upload_lake.zone / "T" / numbered_name(1), (0, 0))
    until(lambda: "ME023" in upload_lake.said()[0], upload_lake.said)


def test_upload_of_more_than_a_minute_is_applied_after_its_flush(upload_lake):
    """LZ-3.11: the flush continues an empty file, of which nothing was read."""
    upload_lake.upload("T/_metadata.json", METADATA)
    path, content = f"T/{numbered_name(1)}", content_of(1)
    upload_lake.create(path)
    upload_lake.append(path, 0, content[:50])
    os.utime(upload_lake.zone / path, (0, 0))
    until(lambda: upload_lake.said()[0] == ["ME023"], upload_lake.said)
    upload_lake.append_and_flush(path, content[50:], 50)
    upload_lake.upload(f"T/{numbered_name(2)}", content_of(2))
    upload_lake.until_applied("T", count=2)


def test_empty_file_that_a_flush_fills_in_part_is_rejected_for_good(upload_lake):
    upload_lake.upload("T/_metadata.json", METADATA)
    path, content = f"T/{numbered_name(1)}", content_of(1)
    upload_lake.create(path)
    os.utime(upload_lake.zone / path, (0, 0))
    for position, found in enumerate((["ME023"], ["ME024"], ["ME024", "ME027"])):
        if position:
            upload_lake.append_and_flush(path, content[50 * position - 50 : 50 * position], 50 * position - 50)
        until(lambda found=found: upload_lake.said()[0] == found, upload_lake.said)


def test_metadata_uploaded_again_never_halts_its_table(upload_lake):
    """LZ-2.6: readers see between create and flush what the engine sees."""
    upload_lake.publish("T", 1)
    upload_lake.until_applied("T", count=1)
    upload_lake.create("T/_metadata.json")
    upload_lake.poll()
    codes, unmet = upload_lake.said()
    assert (codes, [each for each in unmet if "halted" in each]) == ([], [])
    with Mirror(upload_lake.zone.parents[1], writer=upload_lake.writer) as other:
        assert [each.state.code for each in other._status().tables] == ["behind"]
    upload_lake.pool.end()
    with Mirror(upload_lake.zone.parents[1], writer=upload_lake.writer) as other:
        assert [each.state.code for each in other._status().tables] == ["halted"]


def test_rename_over_a_file_without_content_loses_nothing(upload_lake):
    upload_lake.lake.on_lost_file = pytest.fail
    upload_lake.upload("T/_metadata.json", METADATA)
    path = f"T/{numbered_name(1)}"
    upload_lake.create(path)
    upload_lake.upload("T/_1", content_of(1))
    with refused(StorageErrorCode.PathAlreadyExists):
        upload_lake.rename("T/_1", path, ABSENT_ONLY)
    upload_lake.rename("T/_1", path)
    until(lambda: upload_lake.rows("T") == [1], upload_lake.said)


@pytest.mark.parametrize("publishers", [pytest.param(1, marks=pytest.mark.nightly), 20])
def test_uploads_of_healthy_publishers_are_not_reported(upload_lake, publishers):
    tables = [f"T{number}" for number in range(publishers)]
    with ThreadPoolExecutor(publishers) as pool:
        for published in [pool.submit(upload_lake.publish, table, UPLOADS // publishers) for table in tables]:
            published.result()
    upload_lake.until_applied(*tables, count=UPLOADS // publishers)


class Publisher:
    """A publisher that pauses between its requests; `upload` writes a file in the way that was asked for."""

    def __init__(self, emulator, table, seed, longest):
        self.emulator, self.lake, self.table = emulator, emulator.lake, table
        self.drawn, self.longest = random.Random(seed), longest

    def pause(self):
        time.sleep(self.drawn.uniform(0.1, 1.0) * self.longest)

    def at(self, name):
        return self.emulator.at(f"{self.table}/{name}")

    def parts(self, content):
        """Positions and pieces in any order, at least two."""
        cuts = [0, *sorted(self.drawn.sample(range(1, len(content)), 3)), len(content)]
        pieces = [(start, content[start:end]) for start, end in itertools.pairwise(cuts)]
        self.drawn.shuffle(pieces)
        return pieces

    def append_in_parts(self, name, content, start=0):
        for position, piece in self.parts(content):
            self.emulator.append(f"{self.table}/{name}", start + position, piece)
            self.pause()

    def appends_and_one_flush(self, name, content):
        created = self.lake.create_file(self.at(name), ABSENT_ONLY)
        self.pause()
        self.append_in_parts(name, content)
        self.lake.flush(self.at(name), len(content), matching(created))

    def several_flushes_and_a_rename(self, name, content):
        temporary, half = f"_{name}.tmp", len(content) // 2
        self.lake.create_file(self.at(temporary))
        for start, part in ((0, content[:half]), (half, content[half:])):
            self.append_in_parts(temporary, part, start)
            self.lake.flush(self.at(temporary), start + len(part), retains=start == 0)
            self.pause()
        self.lake.flush(self.at(temporary), len(content))  # closes it
        self.pause()
        self.lake.rename(self.at(temporary), self.at(name), ABSENT_ONLY)

    def conditional_put(self, name, content):
        with self.lake.receive() as body:
            for _, piece in sorted(self.parts(content)):
                body.write(piece)
                self.pause()
            self.lake.put(self.at(name), body, ABSENT_ONLY)

    def blocks_out_of_order(self, name, content):
        for position, piece in self.parts(content):
            self.emulator.put_block(f"{self.table}/{name}", f"{position:08}", piece)
            self.pause()
        named = sorted(block for block in self.lake._uploads._uploads[self.at(name).path].parts)
        self.lake.put_block_list(self.at(name), named, ABSENT_ONLY)

    def block_list_and_a_rename(self, name, content):
        self.blocks_out_of_order(f"_{name}", content)
        self.pause()
        self.lake.rename(self.at(f"_{name}"), self.at(name))

    def copy_of_a_staged_file(self, name, content):
        self.conditional_put(f"_{name}", content)
        self.pause()
        self.lake.copy(self.at(f"_{name}"), self.at(name), ABSENT_ONLY)
        self.lake.delete(self.at(f"_{name}"))

    def publish(self, ways, count):
        """Metadata before or after the first file."""
        comes_late = self.drawn.random() < 0.5
        for number in range(1, count + 1):
            if number == 1 + comes_late:
                getattr(self, self.drawn.choice(ways))("_metadata.json", METADATA)
            getattr(self, self.drawn.choice(ways))(numbered_name(number), content_of(number))
            self.pause()


WAYS = [
    "appends_and_one_flush",
    "several_flushes_and_a_rename",
    "conditional_put",
    "blocks_out_of_order",
    "block_list_and_a_rename",
    "copy_of_a_staged_file",
]


def load(end):
    """Half of a processor, until the end."""
    while not end.wait(0.005):
        busy_until = time.monotonic() + 0.005
        while time.monotonic() < busy_until:
            pass


@pytest.mark.parametrize(
    ("ways", "publishers", "count", "longest"),
    [
        (WAYS, 10, 4, 0.1),
        *(pytest.param([way], 20, 10, 0.3, marks=pytest.mark.nightly) for way in WAYS),
        pytest.param(WAYS, 20, 10, 5.0, marks=pytest.mark.nightly),
    ],
)
def test_uploads_with_pauses_under_load_say_nothing(tmp_path, ways, publishers, count, longest):
    emulator, end = Emulator(tmp_path, 0.2 if longest > 1 else 0.02), threading.Event()
    threads = [threading.Thread(target=load, args=(end,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        tables = [f"T{number}" for number in range(publishers)]
        with ThreadPoolExecutor(publishers) as pool:
            work = [Publisher(emulator, table, seed, longest) for seed, table in enumerate(tables)]
            for published in [pool.submit(each.publish, ways, count) for each in work]:
                published.result()
        emulator.until_applied(*tables, count=count)
    finally:
        end.set()
        for thread in threads:
            thread.join()
        emulator.pool.end()
