"""The planner: the same listing gives the same plan. Of a zone: the identity of ROOT, ownership, tables in progress."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import NamedTuple

import pytest
from shop import Shop, name, row

from mirror_engine.config import Config
from mirror_engine.engine.planner import (
    FAILED_AFTER_SECONDS,
    ApplyBatch,
    Circumstances,
    DropTable,
    ZonePlanner,
    overlapping_tables,
    ownership_conflicts,
    plan_listed,
    plan_missing,
    with_identity,
)
from mirror_engine.engine.poller import Poller
from mirror_engine.engine.recovery import DeltaFolders
from mirror_engine.engine.root_identity import FolderChange, RootIdentity, RootIdentityCheck
from mirror_engine.landing_zone.detection import marks_after
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.listing import (
    Entry,
    MetadataAbsent,
    MetadataUnusable,
    MetadataUsable,
    TableListing,
)
from mirror_engine.landing_zone.metadata import FileFormat, Metadata, Strategy
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import AppliedFile, FolderProgress, Progress, Rejection
from mirror_engine.landing_zone.schema import Column
from mirror_engine.landing_zone.states import Behind, CaughtUp, Empty, Halted, Loading, Unconfigured

NOW = 1_000_000.0
ORDERS = TableName("Sales", "Orders")
TOP_ORDERS, IN_SCHEMA = TableName("", "Orders"), TableName("dbo", "ORDERS")
KEYED = MetadataUsable("m1", Metadata(key_columns=("Id",)))
HERE = Circumstances(Config(), NOW)


def numbered(number, identity="", size=10):
    return Entry(f"{number:020d}.parquet", size, number, identity or f"file-{number}")


def folder(*files, metadata=KEYED, identity="folder-1"):
    return TableListing(ORDERS, identity, metadata, files)


class Known(NamedTuple):
    """What is known of a table: its head, and the files of its folder."""

    head: Progress | None
    files: FolderProgress

    def pending(self, *files):
        return self._replace(files=replace(self.files, pending={file.path: file.etag for file in files}))


NEW = Known(None, FolderProgress())


def progress(*applied, **changes):
    files = {file.path: AppliedFile(file.etag, "d", 1, 1, file.modified_ns) for file in applied}
    head = Progress("g", "folder-1", len(applied), len(applied) or -1, ("Id",), configured_at=1.0)
    marks = marks_after({}, files, in_order=True)
    return Known(replace(head, **changes), FolderProgress(marks, files))


def codes(made):
    return [found.code for found in made.diagnostics]


def kinds(made):
    return [getattr(step, "kind", type(step)) for step in made.steps]


ABSENT = MetadataAbsent()
BROKEN = MetadataUnusable("m2:9:1", (diagnose("ME010", "x", line=1, char=2, fault="a bare word", help="quote it"),))
OPTIONAL = Circumstances(Config(missing_metadata="insert-only"), NOW)
ONE, TWO, THREE, FOUR = map(numbered, (1, 2, 3, 4))
BAD, OTHER_ONE = numbered(2, "bad"), numbered(1, "other")
REJECTED = Rejection(diagnose("ME024", "x", reason="cut", help=""), BAD.path, "bad", BAD.etag)
CREATED = MetadataUnusable(f"m:0:{NOW * 10**9:.0f}", (diagnose("ME010", "x", line=1, char=1, fault="empty", help=""),))
WATCHED = Circumstances(Config(), NOW + 59, is_lasting=True)
AHEAD = replace(WATCHED, now=NOW + 86_400, lead_seconds=86_400)
ARRIVING_ONE, ARRIVING, EMPTY_THREE = (
    replace(numbered(number, size=0), modified_ns=int(NOW) * 10**9) for number in (1, 2, 3)
)
FRESH, LATE = replace(ONE, modified_ns=int(NOW) * 10**9), replace(WATCHED, now=NOW + 60)
AT_FIRST = numbered(2, "other", size=0)
FLUSHED = replace(numbered(2, "flushed", size=99), continues=("before", TWO.identity))
COMPLETED = replace(numbered(2, "flushed", size=99), continues=(BAD.identity,))
FILLED = replace(COMPLETED, continues=(AT_FIRST.identity,))
BY_TIME = MetadataUsable("m1", Metadata(key_columns=("Id",), strategy=Strategy.LAST_UPDATE_TIME))
COLUMNS = (Column("Id", "string", nullable=False), Column("N", "integer"))
EMPTY = progress(configured_at=NOW)


def text(*columns, times=frozenset()):
    metadata = Metadata(("Id",), file_format=FileFormat.CSV, extension="csv", declared_columns=columns)
    return folder(metadata=MetadataUsable("m", replace(metadata, time_columns=times)))


def keyed_by(key):
    return MetadataUsable("m2", Metadata(key_columns=(key,)))


def pending(*files, **changes):
    return progress(ONE, **changes).pending(*files)


BARE, UNREADABLE = folder(ONE, metadata=ABSENT), folder(metadata=BROKEN)
RECREATED, COPIED = folder(ONE, identity="folder-2"), folder(numbered(1, "copied"), identity="folder-2")
OVERWRITTEN = folder(ONE, numbered(3, "other"))
KNOWN, REFUSED, WAITING = progress(ONE), progress(ONE, rejection=REJECTED), pending(THREE)
NO_CONTENT = progress(ONE, rejection=Rejection(diagnose("ME023", "x"), AT_FIRST.path, "other", AT_FIRST.etag))
STRICT, LATER = Circumstances(Config(strict=True), NOW), Circumstances(Config(), NOW + FAILED_AFTER_SECONDS)
SOON = replace(HERE, now=NOW + FAILED_AFTER_SECONDS / 2)
RECORD, START, MOVE, MISSING = (
    "record_folder_state",
    "start_generation",
    "update_folder_identity",
    "mark_folder_missing",
)
APPLY = [RECORD, ApplyBatch]
UNREAD = folder(metadata=CREATED)  # metadata that was just created
REPLACED = folder(ONE, replace(TWO, replaced="lost"))

# the folder, how far its table is; the state, the diagnostics and the kinds of steps; circumstances other than HERE.
# What one `sync` after the other shows is in fixtures/.
PLANS = {
    "a caught-up table has no steps": (folder(ONE), KNOWN, CaughtUp(), [], []),
    "optional metadata is no excuse for metadata that vanished": (BARE, KNOWN, Halted, ["ME009"], [RECORD], OPTIONAL),
    "a lasting engine waits for metadata that was just created": (
        folder(ONE, TWO, metadata=CREATED),
        KNOWN,
        Behind(1),
        [],
        [RECORD],
        WATCHED,
    ),
    "of a halted table": (folder(ONE, BAD, metadata=CREATED), REFUSED, Halted, ["ME024"], [RECORD], WATCHED),
    "and of a new folder": (UNREAD, None, Unconfigured, [], [START, RECORD], WATCHED),
    "for a minute": (UNREAD, KNOWN, Halted, ["ME010"], None, LATE),
    "but not for metadata that is wrong": (UNREADABLE, KNOWN, Halted, ["ME010"], [RECORD], WATCHED),
    "or from another time": (UNREAD, KNOWN, Halted, ["ME010"], None, replace(WATCHED, now=NOW - 60)),
    "a store's clock may be ahead": (UNREAD, KNOWN, Behind(0), [], [], replace(WATCHED, now=NOW - 59)),
    "an empty folder is nothing to report yet": (folder(metadata=ABSENT), None, Unconfigured, [], None, WATCHED),
    "files in it are": (BARE, None, Unconfigured, ["ME008"], None, WATCHED),
    "but not files that just came": (folder(FRESH, metadata=ABSENT), None, Unconfigured, [], None, WATCHED),
    "unless they came a minute ago": (folder(FRESH, metadata=ABSENT), None, Unconfigured, ["ME008"], None, LATE),
    "or some did": (folder(FRESH, TWO, metadata=ABSENT), None, Unconfigured, ["ME008"], None, WATCHED),
    "of a known table they are": (folder(FRESH, metadata=ABSENT), KNOWN, Halted, ["ME009"], None, WATCHED),
    "keys in another case are the same": (folder(ONE, metadata=keyed_by("ID")), KNOWN, CaughtUp(), [], []),
    "a file with content after 0 bytes lost nothing": (folder(ONE, TWO), pending(ARRIVING), Behind(1), [], APPLY),
    "nor did one without content at first": (folder(ONE, TWO), pending(AT_FIRST), Behind(1), [], APPLY),
    "a flush continues the file": (folder(ONE, FLUSHED), pending(TWO), Behind(1), ["ME071"], APPLY),
    "and keeps it rejected": (folder(ONE, COMPLETED), REFUSED, Halted, ["ME024", "ME027"], [RECORD]),
    "but goes on with one that was empty": (folder(ONE, FILLED), NO_CONTENT, Behind(1), [], APPLY),
    "unless it still is": (folder(ONE, replace(FILLED, size=0)), NO_CONTENT, Halted, ["ME023", "ME027"], [RECORD]),
    "or was written in place": (folder(ONE, numbered(2, "other")), NO_CONTENT, Halted, ["ME023", "ME027"], [RECORD]),
    "an empty file that was just created is not read": (folder(ONE, ARRIVING), KNOWN, Behind(1), [], [RECORD], WATCHED),
    "nor are numbers after it": (folder(ONE, ARRIVING, THREE), KNOWN, Behind(2), [], [RECORD], WATCHED),
    "those before it are": (folder(ONE, TWO, EMPTY_THREE), KNOWN, Behind(2), [], APPLY, WATCHED),
    "so are others where times order them": (
        folder(ONE, ARRIVING, THREE, metadata=BY_TIME),
        KNOWN,
        Behind(2),
        [],
        APPLY,
        WATCHED,
    ),
    "an empty file of a new table is not read": (folder(ARRIVING_ONE), None, Loading(1), [], [START, RECORD], WATCHED),
    "after a minute it is": (folder(ONE, ARRIVING), KNOWN, Behind(1), [], APPLY, LATE),
    "a minute of the files' clock": (folder(ONE, ARRIVING), KNOWN, Behind(1), [], [RECORD], AHEAD),
    "one that a file took the place of unseen is lost, too": (REPLACED, KNOWN, Behind(1), ["ME025"], APPLY),
    "but not one that was rejected": (
        folder(ONE, replace(TWO, replaced=BAD.identity)),
        REFUSED.pending(BAD),
        Behind(1),
        [],
        None,
    ),
    "nor is it told of again": (REPLACED, pending(TWO), Behind(1), [], [ApplyBatch]),
    "but not if it was applied": (folder(replace(OTHER_ONE, replaced=ONE.identity)), KNOWN, CaughtUp(), ["ME026"], []),
    "a lost batch halts under strict": (OVERWRITTEN, WAITING, Halted, ["ME019", "ME025"], [RECORD], STRICT),
    "a moved root drops nothing and knows its applied files again": (
        COPIED,
        KNOWN,
        CaughtUp(),
        ["ME076"],
        [MOVE],
        replace(HERE, change=FolderChange.MOVED),
    ),
    "metadata without data waits fourteen days": (folder(), EMPTY, Empty(expired=False), [], []),
    "after seven of them it is told": (folder(), EMPTY, Empty(expired=False), ["ME067"], [], SOON),
    "and not longer": (folder(), EMPTY, Empty(expired=True), ["ME068"], [], LATER),
    "a folder that was missing is back": (folder(ONE), progress(ONE, missing_since=NOW), CaughtUp(), [], [RECORD]),
    **{
        f"a changed SchemaDefinition halts: {name}": (
            listing,
            progress(declared_columns=COLUMNS, delta_version=1),
            Halted,
            [code],
            None,
        )
        for name, listing, code in (
            ("a time", text(*COLUMNS, times=frozenset({"Id"})), "ME044"),
            ("a column less", text(COLUMNS[0]), "ME063"),
        )
    },
}


@pytest.mark.parametrize("case", PLANS)
def test_a_table_is_planned(case):
    listing, known, state, expected, steps, *circumstances = PLANS[case]
    arguments = (listing, *(known or NEW), *(circumstances or [HERE]))
    made = plan_listed(*arguments)
    assert made == plan_listed(*arguments), "the same listing gives the same plan"
    assert isinstance(made.state, state) if isinstance(state, type) else made.state == state
    assert codes(made) == expected
    assert steps is None or kinds(made) == steps


def test_moved_folder_keeps_applied_files_of_unknown_content():
    head, files = progress(ONE)
    files = replace(files, applied={ONE.path: AppliedFile("", "", 1, 0, 5)})
    moved, after = with_identity(head, files, COPIED)
    assert after.applied == files.applied
    assert moved.segments is None  # the next commit says again what was applied, with the present etags


def test_a_batch_has_its_files_in_order_and_the_metadata_in_force():
    """LZ-2.1."""
    assert plan_listed(folder(TWO, ONE), *NEW, HERE).steps[-1] == ApplyBatch((ONE, TWO), KEYED.metadata)
    assert plan_listed(folder(ONE, metadata=ABSENT), *NEW, OPTIONAL).steps[-1] == ApplyBatch((ONE,), Metadata())


def test_batch_leaves_out_a_file_that_may_be_arriving():
    """LZ-3.10: in a sequence all after it wait, too."""
    (*_, batch) = plan_listed(folder(ONE, TWO, EMPTY_THREE, FOUR), *KNOWN, WATCHED).steps
    assert batch.files == (TWO,)
    (*_, batch) = plan_listed(folder(ONE, ARRIVING, THREE, metadata=BY_TIME), *KNOWN, WATCHED).steps
    assert batch.files == (THREE,)


def test_rejection_follows_a_file_that_a_flush_continued():
    (recorded,) = plan_listed(folder(ONE, COMPLETED), *REFUSED, HERE).records(RECORD)
    assert (recorded.rejection.identity, recorded.rejection.etag) == (COMPLETED.identity, BAD.etag)


def test_pending_files_without_metadata_are_counted():
    (said,) = plan_listed(folder(ONE, metadata=ABSENT), *NEW, HERE).diagnostics
    assert said.full_message == "Sales.schema/Orders: no `_metadata.json`; 1 file pending [ME008]"


@pytest.mark.parametrize(
    ("delay", "missing_since", "seconds", "steps"),
    [(0, None, 0, [DropTable]), (60, None, 0, [MISSING]), (60, NOW, 59, []), (60, NOW, 60, [DropTable])],
)
def test_a_missing_folder_drops_its_table_after_the_delay(delay, missing_since, seconds, steps):
    """LZ-7.4."""
    circumstances = Circumstances(Config(drop_delay_seconds=delay), NOW + seconds)
    assert kinds(plan_missing(ORDERS, progress(ONE, missing_since=missing_since).head, circumstances)) == steps


@pytest.fixture
def engine_context(tmp_path):
    with context_of(tmp_path) as context:
        yield context


@contextmanager
def context_of(root):
    shop = Shop(root)
    shop.orders().initial_load(row(1))
    with shop.engine() as running:
        yield running.context


def scan(context):
    return Poller(context.storage, context.config).scan()


def replayed(root):
    shop = Shop(root)
    shop.orders().initial_load(row(1))
    shop.sync()
    return shop


def test_tables_are_planned_by_the_listing(engine_context):
    with_orders = scan(engine_context)
    without = replace(with_orders, tables=())
    assert list(ZonePlanner(engine_context, DeltaFolders(), without).plans()) == []
    plans = ZonePlanner(engine_context, DeltaFolders(), with_orders).plans()
    assert kinds(plans[TOP_ORDERS])[0] == START


def test_another_folder_identity_is_a_copy_only_where_root_moved(tmp_path):
    shop = replayed(tmp_path)
    with shop.engine() as running:
        context, zone = running.context, scan(running.context)
        recreated = replace(zone, tables=tuple(replace(table, identity="other") for table in zone.tables))
        check = RootIdentityCheck.at(context, zone)
        progress = context.ledger.progress(TOP_ORDERS), context.ledger.folder(TOP_ORDERS, [name(1)])
        assert isinstance(ZonePlanner(context, DeltaFolders(), recreated).plans()[TOP_ORDERS].steps[0], DropTable)
        assert check.change_of(recreated.tables[0], *progress) is FolderChange.RECREATED
        copied = replace(check, before=RootIdentity("elsewhere", zone.identity))
        assert copied.change_of(recreated.tables[0], *progress) is FolderChange.MOVED
        assert copied.change_of(zone.tables[0], *progress) is FolderChange.NONE
        first = replace(check, before=RootIdentity("", zone.identity))  # ROOT in a store, before it had a table
        assert first.change_of(recreated.tables[0], *progress) is FolderChange.MOVED  # the content decides
        shop.publisher.table("Orders").put(name(1), b"other")
        assert first.change_of(recreated.tables[0], *progress) is FolderChange.RECREATED


def test_moved_root_is_not_remembered_while_a_table_waits_for_another(tmp_path):
    """One whose Delta folder overlaps that of a table in progress is not planned: it may have moved, too."""
    shop = replayed(tmp_path)
    with shop.engine() as running:
        context, zone = running.context, replace(scan(running.context), identity="other")
        busy = TableName("dbo", "Orders")
        planner = ZonePlanner(context, DeltaFolders(), zone)
        assert TOP_ORDERS not in planner.plans([busy])
        planner.remember_root([], [str(planner.root.now)])
        assert planner.root.now != RootIdentityCheck.at(context, zone).before
        planner.plans()
        planner.remember_root([], [])
        assert planner.root.now == RootIdentityCheck.at(context, zone).before


def test_a_moved_root_is_remembered_once_it_is_certain_and_recorded(tmp_path):
    shop = replayed(tmp_path)
    with shop.engine() as running:
        context, zone = running.context, scan(running.context)
        elsewhere = replace(
            zone, identity="other", tables=tuple(replace(table, identity="other") for table in zone.tables)
        )
        ZonePlanner(context, DeltaFolders(), replace(elsewhere, unlisted=frozenset({"Orders"}))).remember_root([], [])
        emptied = ZonePlanner(context, DeltaFolders(), replace(elsewhere, tables=()))
        emptied.remember_root(emptied.plans().values(), [])
        zone_planner = ZonePlanner(context, DeltaFolders(), elsewhere)
        plan = zone_planner.plans()[TOP_ORDERS]
        assert kinds(plan)[0] == MOVE  # byte for byte what was applied
        zone_planner.remember_root([plan], [])  # its folder's identity is not recorded yet
        zone_planner.remember_root([], [str(zone_planner.root.before)])  # a task in progress was planned before
        still = RootIdentityCheck.at(context, elsewhere)
        assert still.now != still.before
        known = context.ledger.progress(TOP_ORDERS)
        context.ledger.record(TOP_ORDERS, replace(known, identity="other"))
        zone_planner.remember_root([plan], [str(zone_planner.root.now)])
        after = RootIdentityCheck.at(context, elsewhere)
        assert after.now == after.before


@pytest.mark.parametrize(
    ("listing", "known", "circumstances", "is_timed"),
    [
        (folder(ONE, THREE), KNOWN, WATCHED, False),
        (folder(ONE, BAD), progress(ONE, rejection=REJECTED), WATCHED, False),
        (folder(), EMPTY, HERE, True),
        (UNREAD, KNOWN, WATCHED, True),
        (UNREAD, KNOWN, HERE, False),
        (UNREAD, KNOWN, LATE, False),
        (folder(ONE, ARRIVING), KNOWN, WATCHED, True),
        (folder(ONE, ARRIVING), KNOWN, LATE, False),
        (folder(ONE, ARRIVING), KNOWN, replace(WATCHED, now=NOW - 3600), True),  # the store's clock is ahead
        (folder(FRESH, metadata=ABSENT), NEW, WATCHED, True),
        (folder(FRESH, metadata=ABSENT), NEW, LATE, False),
        (folder(FRESH, metadata=BROKEN), KNOWN, WATCHED, False),
    ],
)
def test_plan_that_time_alone_may_change_is_marked(listing, known, circumstances, is_timed):
    assert plan_listed(listing, *known, circumstances).is_timed == is_timed


def test_a_folder_with_a_table_owns_its_delta_folder_whatever_its_name(tmp_path):
    with context_of(tmp_path / "new") as context:
        assert list(ownership_conflicts(context, frozenset(), [TOP_ORDERS, IN_SCHEMA])) == [TOP_ORDERS]
    with replayed(tmp_path / "known").engine() as running:
        found = ownership_conflicts(running.context, frozenset(), [IN_SCHEMA])
        assert {name: said.code for name, said in found.items()} == {IN_SCHEMA: "ME004"}


def test_tables_whose_delta_folder_overlaps_one_in_progress_are_not_planned(tmp_path):
    with context_of(tmp_path) as context:
        zone_planner = ZonePlanner(context, DeltaFolders(), scan(context))
        assert zone_planner.plans(except_for=[TableName("", "Items")]).keys() == {TOP_ORDERS}
        assert zone_planner.plans(except_for=[TOP_ORDERS]) == zone_planner.plans(except_for=[IN_SCHEMA]) == {}
    names = {TableName("", "a"), TableName("A", "b"), TableName("A", "c"), TableName("", "d")}
    flat = replace(context, config=Config(default_schema="none"))
    assert overlapping_tables(flat, names, [TableName("", "a")]) == names - {TableName("", "d")}
    assert overlapping_tables(flat, names, [TableName("A", "b")]) == {TableName("", "a"), TableName("A", "b")}
