"""`status`, `history`, `sync` and `validate` as a person sees them: on a terminal of 80 or 120 columns, in a pipe."""

from __future__ import annotations

import io
import json
import re
from itertools import chain
from pathlib import Path

import pytest
from broken_zones import ZONE, items, metadata, number, table, text
from msgspec.structs import replace
from rich.console import Console

from mirror_engine.config import Config
from mirror_engine.mirror import Mirror
from mirror_engine.monitoring.state_text import TableCounts

pytestmark = pytest.mark.slow  # whole commands

GOOD = [
    {"_partnerEvents.json": b"{}"},
    *(table(items(), folder=folder) for folder in ("Good1", "Good2", "Good3", "shop.schema/Orders")),
]
STUCK = [
    {f"Gap/{name}": content for name, content in (
        ("_metadata.json", metadata()), (number(1), items()), (number(3), items()),
    )},
    table(items(), b"", folder="Empty"),
    table(items(), items(markers=[1, 1]), folder="Sales.schema/Keyless", meta=b'{"keyColumn": ["id"]}'),
    table(items(), items(id_type="int32"), folder="Types"),
    text("id,name\r\n1,a\r\n", "id,name\r\n1,a,b\r\n", folder="Item_csv_fields"),
    table(items(), items(markers=[0, 3]), folder="Marker"),
    table(items(), items()[:-100], folder="Half"),
]  # fmt: skip
PATH = re.compile(r"--> (\S+)")


@pytest.fixture(scope="module")
def stuck_root(tmp_path_factory):
    """A ROOT of 11 tables, of which 7 are stuck for as many reasons."""
    root = tmp_path_factory.mktemp("stuck") / "root"
    for path, content in chain.from_iterable(zone.items() for zone in (*GOOD, *STUCK)):
        file = root / ZONE / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    with Mirror(root, Config(merge_engine="arrow")) as mirror:
        mirror.sync()
    return root


@pytest.fixture
def stuck(stuck_root, monkeypatch):
    """The same, from its parent folder: paths are short."""
    monkeypatch.chdir(stuck_root.parent)
    return Path(stuck_root.name)


@pytest.mark.parametrize("width", [80, 120])
def test_status_of_seven_stuck_tables_fits_a_screen(stuck, on_terminal, width):
    _, lines = on_terminal(width, "status", stuck)
    assert len(lines) <= 40
    legend = " * Fabric shows an error." if any("Replicating*" in line for line in lines) else ""
    assert lines[-1] == f"11 tables: 4 caught up, 7 need attention.{legend}"
    assert bool(legend) == (width == 120)  # the column has no room in 80
    assert max(map(len, lines)) <= width
    at = next(at for at, line in enumerate(lines) if line.startswith("Table "))
    names = [line.split()[0] for line in lines[at + 1 : at + 12]]
    assert {*names[7:]} == {"Good1", "Good2", "Good3", "shop.Orders"}


@pytest.mark.parametrize("command", [("status",), ("sync",), ("validate",)])
@pytest.mark.parametrize("width", [50, 80, 10_000])
def test_no_path_is_wrapped_and_no_line_ends_in_blanks(stuck, on_terminal, command, width):
    _, lines = on_terminal(width, *command, stuck)
    found = [
        match[1].rpartition("/")[2].partition(":")[0].rstrip(",") for line in lines if (match := PATH.search(line))
    ]
    assert {number(2), number(2, "csv"), "_metadata.json", "Gap"} >= {*found} >= {number(2), number(2, "csv")}
    assert [line for line in lines if line != line.rstrip()] == []


def test_a_finding_is_said_once_and_its_cause_first(stuck, cli):
    out = cli("status", stuck).out
    for said in ("file is empty", "row marker is 3", "3 fields", "unknown property", "does not end as"):
        assert out.count(said) == 1, said
    assert out.index("unknown property keyColumn") < out.index("row marker 1 requires")
    paragraphs = out.partition("\n\nSales.Keyless")[2]
    assert paragraphs.count("00000000000000000002.parquet is missing") == 1


def test_status_of_one_table_has_its_pending_files(stuck, cli):
    out = cli("status", stuck, "--table", "gap").out
    assert "Types" not in out
    assert f"pending: {number(3)}\n" in out
    assert out.endswith("1 table: 1 needs attention.\n")
    document = json.loads(cli("status", stuck, "--table", "Gap", "--table", "Sales.Keyless", "--json").out)
    assert [found["table"] for found in document["tables"]] == ["Sales.Keyless", "Gap"]
    assert document["counts"] == {"caught_up": 0, "need_attention": 2, "pending": 0, "empty": 0, "unconfigured": 0}
    unknown = cli("status", stuck, "--table", "Tpes")
    assert (unknown.code, "did you mean Types?" in unknown.err) == (2, True)


def test_sync_and_validate_end_with_what_is_left(stuck, cli):
    assert cli("sync", stuck).out.endswith("11 tables: 4 caught up, 7 need attention.\n")
    assert cli("validate", stuck).out.endswith("Failed: 1 table is blocked, 6 tables are halted.\n")


def test_status_lists_some_of_many_stuck_tables(stuck):
    with Mirror(stuck, Config()) as mirror:
        status = mirror.status()
    one = next(found for found in status.tables if found.table == "Half")
    many = [replace(one, table=f"T{at}") for at in range(1_000)]
    counts = TableCounts(need_attention=1_000)
    console = Console(file=io.StringIO(), width=80)
    for part in replace(status, tables=many, counts=counts).text():
        console.print(part)
    lines = console.file.getvalue().splitlines()
    assert len(lines) < 1_100
    assert lines[-2:] == [
        "… and 980 more tables: see --table NAME, or --json",
        "1,000 tables: 1,000 need attention. * Fabric shows an error.",
    ]


def test_history_names_files_whole_on_80_columns(stuck, on_terminal):
    _, lines = on_terminal(80, "history", "-C", stuck, "Good1")
    assert max(map(len, lines)) <= 80
    assert lines[1].endswith(f"  {number(1)}")


def test_a_root_before_a_table_is_answered_with_the_flag(stuck, cli):
    printed = cli("show", stuck, "Items")
    assert (printed.code, f"mirror-engine show -C {stuck} …" in printed.err) == (2, True)
    assert "-C" not in cli("show", "Items", "Orders").err
    assert Path(stuck).exists()
