"""The planner: the same listing gives the same plan."""

from __future__ import annotations

from dataclasses import replace

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


def numbered(number: int, identity: str = "", size: int = 10) -> LandedFile:
    return LandedFile(f"{number:020d}.parquet", size, number, identity or f"file-{number}")


def folder(*files: LandedFile, metadata=KEYED, identity="folder-1") -> TableListing:
    return TableListing(ORDERS, identity, metadata, files)


def progress(*applied: LandedFile, **changes) -> Progress:
    files = {file.path: AppliedFile(file.etag, "d", 1, 1, file.modified_ns) for file in applied}
    known = Progress(
        "g", "folder-1", len(applied), len(applied) or -1, {"": len(applied)}, files, ("Id",), configured_at=1.0
    )
    return replace(known, **changes)


def codes(made) -> list[str]:
    return [found.code for found in made.diagnostics]


def kinds(made) -> list[type]:
    return [type(step) for step in made.steps]


def test_a_new_folder_begins_a_generation_and_loads():
    made = plan(folder(numbered(1), numbered(2)), None, HERE)
    assert made.state == Loading(2)
    assert kinds(made) == [StartGeneration, RecordFolderState, ApplyBatch]
    assert [file.path for file in made.steps[-1].files] == [numbered(1).path, numbered(2).path]


def test_the_same_listing_gives_the_same_plan():
    listing = folder(numbered(2), numbered(1), numbered(4))
    assert plan(listing, None, HERE) == plan(listing, None, HERE)


def test_a_level_table_has_no_steps():
    made = plan(folder(numbered(1)), progress(numbered(1)), HERE)
    assert (made.state, made.steps, codes(made)) == (CaughtUp(), (), [])


def test_an_unconfigured_folder_seen_before_has_no_steps():
    seen = progress(configured_at=0.0, pending_etags={numbered(1).path: numbered(1).etag})
    made = plan(folder(numbered(1), metadata=MetadataAbsent()), seen, HERE)
    assert (made.steps, codes(made)) == ((), ["ME008"])


def test_a_gap_blocks_and_is_no_error():
    made = plan(folder(numbered(1), numbered(3)), progress(numbered(1)), HERE)
    assert made.state == Blocked(numbered(2).path, 1)
    assert codes(made) == ["ME019"]


def test_files_before_a_gap_go_in():
    made = plan(folder(numbered(1), numbered(2), numbered(4)), progress(numbered(1)), HERE)
    assert made.state == Behind(1)
    assert made.steps[-1].files == (numbered(2),)


def test_no_metadata_leaves_a_new_folder_unconfigured_and_halts_a_known_table():
    listing = folder(numbered(1), metadata=MetadataAbsent())
    assert isinstance(plan(listing, None, HERE).state, Unconfigured)
    assert codes(plan(listing, None, HERE)) == ["ME008"]
    said = plan(listing, None, HERE).diagnostics[0].full_message
    assert said == "Sales.schema/Orders: no `_metadata.json`; 1 file pending [ME008]"
    known = plan(listing, progress(numbered(1)), HERE)
    assert isinstance(known.state, Halted)
    assert codes(known) == ["ME009"]


def test_metadata_optional_reads_a_bare_parquet_folder_as_insert_only():
    made = plan(
        folder(numbered(1), metadata=MetadataAbsent()), None, Circumstances(Config(missing_metadata="insert-only"), NOW)
    )
    assert made.state == Loading(1)
    assert made.steps[-1].metadata == Metadata()


def test_metadata_optional_is_no_excuse_for_metadata_that_vanished():
    optional = Circumstances(Config(missing_metadata="insert-only"), NOW)
    made = plan(folder(numbered(1), metadata=MetadataAbsent()), progress(numbered(1)), optional)
    assert codes(made) == ["ME009"]


def test_unusable_metadata_leaves_a_new_folder_unconfigured_and_halts_a_known_table():
    broken = MetadataUnusable("m2", (diagnose("ME010", "x", line=1, char=2, fault="a bare word", help="quote it"),))
    assert isinstance(plan(folder(metadata=broken), None, HERE).state, Unconfigured)
    assert isinstance(plan(folder(metadata=broken), progress(numbered(1)), HERE).state, Halted)


def test_usable_metadata_again_releases_the_halt():
    halted = progress(numbered(1), rejection=Rejection(diagnose("ME009", "x"), "_metadata.json", "", ""))
    made = plan(folder(numbered(1), numbered(2)), halted, HERE)
    assert made.state == Behind(1)
    assert made.steps[0].rejection is None


def test_changed_keys_halt_until_they_are_restored():
    other = MetadataUsable("m2", Metadata(key_columns=("Other",)))
    made = plan(folder(numbered(1), metadata=other), progress(numbered(1)), HERE)
    assert codes(made) == ["ME017"]
    same = MetadataUsable("m3", Metadata(key_columns=("ID",)))
    assert plan(folder(numbered(1), metadata=same), progress(numbered(1)), HERE).state == CaughtUp()


def test_keys_may_be_added_to_a_keyless_table():
    made = plan(folder(numbered(1)), progress(numbered(1), key_columns=()), HERE)
    assert made.state == CaughtUp()


def test_a_changed_schema_definition_halts():
    before = (Column("Id", "string", nullable=False), Column("N", "integer"))
    known = progress(declared_columns=before, delta_version=1, key_columns=("Id",))

    def with_columns(*columns: Column, times=frozenset()):
        text = Metadata(
            ("Id",), file_format=FileFormat.CSV, extension="csv", declared_columns=columns, time_columns=times
        )
        return plan(folder(metadata=MetadataUsable("m", text)), known, HERE)

    assert codes(with_columns(*before)) == []
    assert codes(with_columns(before[0], Column("N", "long"))) == ["ME044"]
    assert codes(with_columns(*before, times=frozenset({"Id"}))) == ["ME044"]
    assert codes(with_columns(before[0])) == ["ME063"]
    assert codes(with_columns(*before, Column("New", "string"))) == ["ME063"]


def test_a_refused_file_keeps_the_table_halted_until_it_is_replaced():
    bad = numbered(2, "bad")
    known = progress(numbered(1), rejection=Rejection(diagnose("ME024", "x", reason="cut"), bad.path, "bad", bad.etag))
    halted = plan(folder(numbered(1), bad, numbered(3)), known, HERE)
    assert isinstance(halted.state, Halted)
    assert ApplyBatch not in kinds(halted)
    completed = plan(folder(numbered(1), numbered(2, "bad", 99)), known, HERE)
    assert isinstance(completed.state, Halted)
    assert codes(completed) == ["ME024", "ME027"]
    assert plan(folder(numbered(1), numbered(2, "new")), known, HERE).state == Behind(1)
    assert plan(folder(numbered(1)), known, HERE).state == CaughtUp()
    assert plan(folder(numbered(1), numbered(3)), known, HERE).state == Blocked(numbered(2).path, 1)


def test_a_waiting_file_that_was_overwritten_is_a_lost_batch():
    known = progress(numbered(1), pending_etags={numbered(3).path: numbered(3).etag})
    made = plan(folder(numbered(1), numbered(3, "other")), known, HERE)
    assert codes(made) == ["ME019", "ME025"]


def test_a_waiting_file_that_grew_is_reported_apart():
    known = progress(numbered(1), pending_etags={numbered(3).path: numbered(3).etag})
    made = plan(folder(numbered(1), numbered(3, "file-3", 99)), known, HERE)
    assert codes(made) == ["ME019", "ME071"]


def test_a_lost_batch_halts_under_strict():
    known = progress(numbered(1), pending_etags={numbered(3).path: numbered(3).etag})
    made = plan(folder(numbered(1), numbered(3, "other")), known, Circumstances(Config(strict=True), NOW))
    assert isinstance(made.state, Halted)


def test_a_new_folder_identity_drops_and_rebuilds():
    made = plan(folder(numbered(1), identity="folder-2"), progress(numbered(1)), HERE)
    assert kinds(made) == [DropTable, StartGeneration, RecordFolderState, ApplyBatch]
    assert made.state == Loading(1)
    assert codes(made) == ["ME066"]


def test_a_moved_root_drops_nothing_and_knows_its_applied_files_again():
    moved = replace(HERE, moved=True)
    made = plan(folder(numbered(1, "copied"), identity="folder-2"), progress(numbered(1)), moved)
    assert kinds(made) == [UpdateFolderIdentity]
    assert made.state == CaughtUp()
    assert codes(made) == ["ME076"]


def test_metadata_without_data_waits_fourteen_days():
    fresh = plan(folder(), progress(configured_at=NOW, watermarks={}), HERE)
    assert fresh.state == Empty(expired=False)
    assert codes(fresh) == ["ME067"]
    late = Circumstances(Config(), NOW + FAILED_AFTER_SECONDS)
    assert plan(folder(), progress(configured_at=NOW, watermarks={}), late).state == Empty(expired=True)
    assert codes(plan(folder(), progress(configured_at=NOW, watermarks={}), late)) == ["ME068"]


def test_a_gone_folder_drops_its_table():
    made = plan_missing(ORDERS, progress(numbered(1)), HERE)
    assert kinds(made) == [DropTable]


def test_a_gone_folder_is_given_its_delay():
    slow = Config(drop_delay_seconds=60)
    first = plan_missing(ORDERS, progress(numbered(1)), Circumstances(slow, NOW))
    assert first.steps == (MarkFolderMissing(NOW),)
    known = progress(numbered(1), missing_since=NOW)
    assert plan_missing(ORDERS, known, Circumstances(slow, NOW + 59)).steps == ()
    assert kinds(plan_missing(ORDERS, known, Circumstances(slow, NOW + 60))) == [DropTable]
    back = plan(folder(numbered(1)), known, HERE)
    assert kinds(back) == [RecordFolderState]


def test_a_table_without_a_place_is_halted_and_touches_nothing():
    refusal = diagnose("ME004", "Orders", table="Sales/Orders", folder="Sales.schema/Orders")
    made = plan(folder(numbered(1)), None, replace(HERE, refusal=refusal))
    assert (made.state, made.steps) == (Halted(refusal, 1), ())
