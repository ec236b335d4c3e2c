"""The planner: the same listing gives the same plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror_engine.config import Config
from mirror_engine.engine.plan import (
    ApplyBatch,
    DropTable,
    MarkFolderMissing,
    RecordFolderState,
    StartGeneration,
    UpdateFolderIdentity,
)
from mirror_engine.engine.planner import FAILED_AFTER_SECONDS, Circumstances, plan, plan_missing
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.listing import (
    LandedFile,
    MetadataAbsent,
    MetadataUnusable,
    MetadataUsable,
    TableListing,
)
from mirror_engine.landing_zone.metadata import FileFormat, Metadata
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import AppliedFile, Progress, Rejection
from mirror_engine.landing_zone.schema import Column
from mirror_engine.landing_zone.states import Behind, Blocked, CaughtUp, Empty, Halted, Loading, Unconfigured

NOW = 1_000_000.0
ORDERS = TableName("Sales", "Orders")
KEYED = MetadataUsable("m1", Metadata(key_columns=("Id",)))
HERE = Circumstances(Config(), NOW)


def numbered(number, identity="", size=10):
    return LandedFile(f"{number:020d}.parquet", size, number, identity or f"file-{number}")


def folder(*files, metadata=KEYED, identity="folder-1"):
    return TableListing(ORDERS, identity, metadata, files)


def progress(*applied, **changes):
    files = {file.path: AppliedFile(file.etag, "d", 1, 1, file.modified_ns) for file in applied}
    known = Progress(
        "g", "folder-1", len(applied), len(applied) or -1, {"": len(applied)}, files, ("Id",), configured_at=1.0
    )
    return replace(known, **changes)


def codes(made):
    return [found.code for found in made.diagnostics]


def kinds(made):
    return [type(step) for step in made.steps]


ABSENT = MetadataAbsent()
BROKEN = MetadataUnusable("m2", (diagnose("ME010", "x", line=1, char=2, fault="a bare word", help="quote it"),))
OPTIONAL = Circumstances(Config(missing_metadata="insert-only"), NOW)
ONE, TWO, THREE, FOUR = map(numbered, (1, 2, 3, 4))
BAD = numbered(2, "bad")
REJECTED = Rejection(diagnose("ME024", "x", reason="cut"), BAD.path, "bad", BAD.etag)
COLUMNS = (Column("Id", "string", nullable=False), Column("N", "integer"))
EMPTY = progress(configured_at=NOW, watermarks={})


def text(*columns, times=frozenset()):
    metadata = Metadata(("Id",), file_format=FileFormat.CSV, extension="csv", declared_columns=columns)
    return folder(metadata=MetadataUsable("m", replace(metadata, time_columns=times)))


def keyed_by(key):
    return MetadataUsable("m2", Metadata(key_columns=(key,)))


def pending(*files, **changes):
    return progress(ONE, pending_etags={file.path: file.etag for file in files}, **changes)


# the folder, how far its table is, the circumstances; the state, the diagnostics and the kinds of steps
PLANS = {
    "a new folder begins a generation and loads": (
        (folder(ONE, TWO), None, HERE),
        (Loading(2), [], [StartGeneration, RecordFolderState, ApplyBatch]),
    ),
    "a caught-up table has no steps": ((folder(ONE), progress(ONE), HERE), (CaughtUp(), [], [])),
    "an unconfigured folder seen before has no steps": (
        (folder(ONE, metadata=ABSENT), progress(configured_at=0.0, pending_etags={ONE.path: ONE.etag}), HERE),
        (Unconfigured, ["ME008"], []),
    ),
    "a gap blocks and is no error": (
        (folder(ONE, THREE), progress(ONE), HERE),
        (Blocked(TWO.path, 1), ["ME019"], [RecordFolderState]),
    ),
    "files before a gap go in": (
        (folder(ONE, TWO, FOUR), progress(ONE), HERE),
        (Behind(1), ["ME019"], [RecordFolderState, ApplyBatch]),
    ),
    "no metadata leaves a new folder unconfigured": (
        (folder(ONE, metadata=ABSENT), None, HERE),
        (Unconfigured, ["ME008"], [StartGeneration, RecordFolderState]),
    ),
    "no metadata halts a known table": (
        (folder(ONE, metadata=ABSENT), progress(ONE), HERE),
        (Halted, ["ME009"], [RecordFolderState]),
    ),
    "optional metadata is no excuse for metadata that vanished": (
        (folder(ONE, metadata=ABSENT), progress(ONE), OPTIONAL),
        (Halted, ["ME009"], [RecordFolderState]),
    ),
    "optional metadata lets a bare folder load": (
        (folder(ONE, metadata=ABSENT), None, OPTIONAL),
        (Loading(1), [], [StartGeneration, RecordFolderState, ApplyBatch]),
    ),
    "unusable metadata leaves a new folder unconfigured": (
        (folder(metadata=BROKEN), None, HERE),
        (Unconfigured, ["ME010"], [StartGeneration, RecordFolderState]),
    ),
    "unusable metadata halts a known table": (
        (folder(metadata=BROKEN), progress(ONE), HERE),
        (Halted, ["ME010"], [RecordFolderState]),
    ),
    "usable metadata again releases the halt": (
        (folder(ONE, TWO), progress(ONE, rejection=Rejection(diagnose("ME009", "x"), "_metadata.json", "", "")), HERE),
        (Behind(1), [], [RecordFolderState, ApplyBatch]),
    ),
    "changed keys halt": ((folder(ONE, metadata=keyed_by("Other")), progress(ONE), HERE), (Halted, ["ME017"], None)),
    "keys in another case are the same": (
        (folder(ONE, metadata=keyed_by("ID")), progress(ONE), HERE),
        (CaughtUp(), [], []),
    ),
    "keys may be added to a keyless table": ((folder(ONE), progress(ONE, key_columns=()), HERE), (CaughtUp(), [], [])),
    "a rejected file keeps the table halted": (
        (folder(ONE, BAD, THREE), progress(ONE, rejection=REJECTED), HERE),
        (Halted, ["ME024"], [RecordFolderState]),
    ),
    "though it was completed": (
        (folder(ONE, numbered(2, "bad", 99)), progress(ONE, rejection=REJECTED), HERE),
        (Halted, ["ME024", "ME027"], [RecordFolderState]),
    ),
    "until it is replaced": ((folder(ONE, TWO), progress(ONE, rejection=REJECTED), HERE), (Behind(1), [], None)),
    "or deleted": ((folder(ONE), progress(ONE, rejection=REJECTED), HERE), (CaughtUp(), [], None)),
    "or deleted before others": (
        (folder(ONE, THREE), progress(ONE, rejection=REJECTED), HERE),
        (Blocked(TWO.path, 1), ["ME019"], None),
    ),
    "a pending file that was overwritten is a lost batch": (
        (folder(ONE, numbered(3, "other")), pending(THREE), HERE),
        (Blocked(TWO.path, 1), ["ME019", "ME025"], [RecordFolderState]),
    ),
    "one that grew is reported apart": (
        (folder(ONE, numbered(3, "file-3", 99)), pending(THREE), HERE),
        (Blocked(TWO.path, 1), ["ME019", "ME071"], [RecordFolderState]),
    ),
    "a lost batch halts under strict": (
        (folder(ONE, numbered(3, "other")), pending(THREE), Circumstances(Config(strict=True), NOW)),
        (Halted, ["ME019", "ME025"], [RecordFolderState]),
    ),
    "a new folder identity drops and rebuilds": (
        (folder(ONE, identity="folder-2"), progress(ONE), HERE),
        (Loading(1), ["ME066"], [DropTable, StartGeneration, RecordFolderState, ApplyBatch]),
    ),
    "a moved root drops nothing and knows its applied files again": (
        (folder(numbered(1, "copied"), identity="folder-2"), progress(ONE), replace(HERE, moved=True)),
        (CaughtUp(), ["ME076"], [UpdateFolderIdentity]),
    ),
    "metadata without data waits fourteen days": ((folder(), EMPTY, HERE), (Empty(expired=False), ["ME067"], [])),
    "and not longer": (
        (folder(), EMPTY, replace(HERE, now=NOW + FAILED_AFTER_SECONDS)),
        (Empty(expired=True), ["ME068"], []),
    ),
    "a folder that was missing is back": (
        (folder(ONE), progress(ONE, missing_since=NOW), HERE),
        (CaughtUp(), [], [RecordFolderState]),
    ),
    "a table without a place is halted and touches nothing": (
        (folder(ONE), None, replace(HERE, refusal=diagnose("ME004", "Orders", table="Sales/Orders", folder="Orders"))),
        (Halted, ["ME004"], []),
    ),
    **{
        f"a changed SchemaDefinition halts: {name}": (
            (listing, progress(declared_columns=COLUMNS, delta_version=1), HERE),
            (Halted, [code], None),
        )
        for name, listing, code in (
            ("a type", text(COLUMNS[0], Column("N", "long")), "ME044"),
            ("a time", text(*COLUMNS, times=frozenset({"Id"})), "ME044"),
            ("a column less", text(COLUMNS[0]), "ME063"),
            ("a column more", text(*COLUMNS, Column("New", "string")), "ME063"),
        )
    },
}


@pytest.mark.parametrize("case", PLANS)
def test_a_table_is_planned(case):
    arguments, (state, expected, steps) = PLANS[case]
    made = plan(*arguments)
    assert made == plan(*arguments), "the same listing gives the same plan"
    assert isinstance(made.state, state) if isinstance(state, type) else made.state == state
    assert codes(made) == expected
    assert steps is None or kinds(made) == steps


def test_a_batch_has_its_files_in_order_and_the_metadata_in_force():
    assert plan(folder(TWO, ONE), None, HERE).steps[-1] == ApplyBatch((ONE, TWO), KEYED.metadata)
    assert plan(folder(ONE, metadata=ABSENT), None, OPTIONAL).steps[-1] == ApplyBatch((ONE,), Metadata())


def test_pending_files_without_metadata_are_counted():
    (said,) = plan(folder(ONE, metadata=ABSENT), None, HERE).diagnostics
    assert said.full_message == "Sales.schema/Orders: no `_metadata.json`; 1 file pending [ME008]"


@pytest.mark.parametrize(
    ("delay", "missing_since", "seconds", "steps"),
    [
        (0, None, 0, [DropTable]),
        (60, None, 0, [MarkFolderMissing]),
        (60, NOW, 59, []),
        (60, NOW, 60, [DropTable]),
    ],
)
def test_a_missing_folder_drops_its_table_after_the_delay(delay, missing_since, seconds, steps):
    circumstances = Circumstances(Config(drop_delay_seconds=delay), NOW + seconds)
    assert kinds(plan_missing(ORDERS, progress(ONE, missing_since=missing_since), circumstances)) == steps
