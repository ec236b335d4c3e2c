"""Status: state, progress, lag and files of a table (LZ-9.7)."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

from mirror_engine.config import Config
from mirror_engine.engine.ledger import Ledger
from mirror_engine.engine.planner import Circumstances, plan_listed
from mirror_engine.landing_zone.detection import marks_after
from mirror_engine.landing_zone.diagnostics import diagnose
from mirror_engine.landing_zone.listing import Entry, MetadataAbsent, MetadataUsable, TableListing
from mirror_engine.landing_zone.metadata import Metadata
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.progress import Applied, AppliedFile, Progress, Rejection
from mirror_engine.landing_zone.states import Behind, Blocked, CaughtUp, Unconfigured
from mirror_engine.monitoring.status import MirrorStatus, TableStatus, table_status
from mirror_engine.monitoring.status_results import Status

NOW = 1_000_000.0
ORDERS = TableName("Sales", "Orders")
KEYED = MetadataUsable("m", Metadata(key_columns=("Id",)))
INVALID_MARKER = diagnose("ME037", f"{ORDERS.folder}/00000000000000000002.parquet", row=7, value="3", meant="")


def file(number: int, age_seconds: float = 10) -> Entry:
    return Entry(f"{number:020d}.parquet", 10, int((NOW - age_seconds) * 1e9), f"f{number}")


def known(*applied: Entry, **changes) -> tuple[Progress, Applied]:
    files = {each.path: AppliedFile(each.etag, "d", 3, 5, each.modified_ns) for each in applied}
    progress = Progress("g", "folder", 1, 3, ("Id",), last_commit_at=NOW - 60, configured_at=1.0)
    progress = replace(progress, rows_processed=9, bytes_processed=99, **changes)
    return progress, Applied(files, marks_after({}, files, in_order=True))


def status(
    *files: Entry, progress: tuple[Progress, Applied] | None = None, metadata=KEYED, identity="folder"
) -> TableStatus:
    ledger = Ledger.fresh()
    if progress:
        ledger.record(ORDERS, *progress)
    seen = ledger.progress(ORDERS), ledger.folder(ORDERS, [each.path for each in files])
    planned = plan_listed(TableListing(ORDERS, identity, metadata, files), *seen, Circumstances(Config(), NOW))
    context = SimpleNamespace(
        ledger=ledger,
        config=Config(),
        clock=lambda: NOW,
        now=NOW,
        delta=SimpleNamespace(snapshot=lambda _: SimpleNamespace(count_rows=lambda: 4)),
        delta_folder=lambda _: "Sales/Orders",
    )
    return table_status(context, planned, files)


def states_of(found: TableStatus) -> list[tuple[str, str]]:
    return [(file.path[18:20].lstrip("0"), file.state) for file in found.files]


def test_a_table_that_has_caught_up_has_no_lag_and_lists_its_applied_files() -> None:
    found = status(file(1), progress=known(file(1)))
    assert (found.state, found.lag_seconds, found.pending_files, found.blocked_by) == (CaughtUp(), 0.0, (), None)
    assert (found.delta_version, found.last_commit_at, found.row_count) == (3, NOW - 60, 4)
    assert [(each.state, each.delta_version, each.rows) for each in found.files] == [("applied", 3, 5)]
    assert found.next_files == {"": "00000000000000000002.parquet"}


def test_lag_is_the_age_of_the_oldest_file_that_is_not_in_the_table() -> None:
    found = status(file(1, 500), file(2, 30), file(3, 40), progress=known(file(1, 500)))
    assert (found.lag_seconds, len(found.pending_files)) == (40, 2)
    assert status(file(1, -30)).lag_seconds == 0.0  # a clock behind the files


def test_files_after_a_gap_name_the_missing_one() -> None:
    found = status(file(1), file(3), progress=known(file(1)))
    assert found.state == Blocked("00000000000000000002.parquet", 1)
    assert found.blocked_by == "Sales.schema/Orders/00000000000000000002.parquet"
    assert found.pending_files[0].reason == "00000000000000000002.parquet is missing"
    found = status(file(1), file(2), file(4), progress=known(file(1)))
    assert isinstance(found.state, Behind)
    assert found.blocked_by == "Sales.schema/Orders/00000000000000000003.parquet"
    reasons = ["ready for the next cycle", "00000000000000000003.parquet is missing"]
    assert [file.reason for file in found.pending_files] == reasons


def test_in_a_halted_table_one_file_is_rejected_and_the_others_are_pending() -> None:
    rejection = Rejection(INVALID_MARKER, file(2).path, file(2).identity, file(2).etag)
    found = status(file(1), file(2), file(3), progress=known(file(1), rejection=rejection))
    assert states_of(found) == [("2", "rejected"), ("3", "pending"), ("1", "applied")]
    assert found.blocked_by == INVALID_MARKER.path
    assert found.next_files == {"": file(2).path}  # to be replaced
    assert found.pending_files[1].reason == f"the table is halted at {INVALID_MARKER.path}"


def test_files_of_an_unconfigured_folder_are_pending() -> None:
    found = status(file(1), metadata=MetadataAbsent())
    assert isinstance(found.state, Unconfigured)
    assert (found.pending_files[0].reason, found.blocked_by) == (
        "the folder has no usable _metadata.json",
        "Sales.schema/Orders",
    )


def test_a_recreated_folder_shows_nothing_of_its_former_generation() -> None:
    found = status(file(1), progress=known(file(1), file(2)), identity="another")
    assert (found.watermarks, found.rows_processed, found.delta_version) == ({}, 0, None)
    assert states_of(found) == [("1", "pending")]


def test_ignored_paths_and_diagnostics_of_applied_files_are_listed() -> None:
    raised = diagnose("ME043", "Sales.schema/Orders/x.parquet", count=2)
    found = status(Entry("0001.parquet", 1, 1, "s"), progress=known(diagnostics={raised: 3}))
    assert [each.code for each in found.ignored] == ["ME020"]
    assert (found.message, found.urgency) == ("Sales.Orders has caught up; 1 ignored path with data", "idle")
    foreign = status(Entry("notes.md", 1, 1, "s"), progress=known())
    assert (foreign.message, foreign.urgency) == ("Sales.Orders has caught up", "well")
    assert found.pending_files == ()
    assert (raised, 3) in found.diagnostics


def test_absent_values_are_null_and_fabrics_status_is_quoted() -> None:
    mirror = MirrorStatus("/r", "z", (status(file(1), progress=known(file(1))),), (diagnose("ME001", ""),))
    (table,) = json.loads(json.dumps(Status.of_status(mirror).to_json(), allow_nan=False))["tables"]
    assert (table["table"], table["landing_folder"]) == ("Sales.Orders", "Sales.schema/Orders")
    assert (table["delta_path"], table["fabric_status"]) == ("Tables/Sales/Orders", "Replicating")
    assert (table["help"], table["fabric_error"], table["files"][0]["reason"]) == (None, None, None)
    rejection = Rejection(INVALID_MARKER, file(2).path, file(2).identity, file(2).etag)
    halted = status(file(1), file(2), progress=known(file(1), rejection=rejection))
    assert "row marker is 3" in halted.fabric_error
    assert status(file(1), metadata=MetadataAbsent()).fabric_status is None
