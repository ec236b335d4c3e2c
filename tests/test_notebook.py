"""What a notebook shows of a mirror, and the tools it has at hand."""

from __future__ import annotations

import ast
import builtins
import inspect
import os
import pydoc
import re
import subprocess
import sys
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest
from shop import Shop, row

import mirror_engine
from mirror_engine import Config, Mirror
from mirror_engine.errors import SetupError, UnknownTable, UsageError
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter
from mirror_engine.tools.difference import DifferentCell

GUIDE = Path(__file__).parents[1] / "docs/how-to/notebook.md"


class Cells(HTMLParser):
    """The texts of a table, row by row."""

    def __init__(self, html):
        super().__init__()
        self.rows, self.tags = [], set()
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, _):
        self.tags.add(tag)
        if tag in {"tr", "caption"}:
            self.rows.append([])
        if tag in {"td", "th", "caption"}:
            self.rows[-1].append("")

    def handle_data(self, data):
        self.rows[-1][-1] += data


@pytest.fixture
def viewed(tmp_path):
    shop = Shop(tmp_path)
    orders = shop.orders()
    orders.insert(row(10), row(2))
    orders.insert({"id": 1, "city": "<b>Graz</b> & more"})
    orders.update({"id": 2, "city": None})
    shop.orders("Empty")
    with Mirror(tmp_path, writer=shop.writer) as mirror:
        mirror.sync()
        yield mirror


def test_the_package_shows_its_public_names_only():
    assert sorted(dir(mirror_engine)) == sorted(mirror_engine.__all__)
    assert all(getattr(mirror_engine, name) for name in dir(mirror_engine))


def test_a_mirror_shows_its_place_and_as_html_its_status(viewed):
    assert repr(viewed) == f"Mirror({str(viewed.root)!r})"
    shown = Cells(viewed._repr_html_()).rows
    assert shown[:2] == [[str(viewed.root)], ["Table", "State", "Pending files", "Rows", "Version", "Message"]]
    assert shown[2:] == [
        ["Empty", "empty", "0", "NULL", "NULL", "Empty has metadata but no change files"],
        ["Orders", "caught up", "0", "3", "1", "Orders has caught up"],
    ]


def test_rows_are_shown_sorted_by_key_and_escaped(viewed):
    rows = viewed.show("orders")
    assert [each["id"] for each in rows] == [1, 2, 10]
    shown = Cells(rows._repr_html_())
    assert shown.rows == [["3 rows"], ["id", "city"], ["1", "<b>Graz</b> & more"], ["2", "NULL"], ["10", "Linz"]]
    assert "b" not in shown.tags
    assert [each["id"] for each in viewed.show("orders", limit=2)] == [1, 2]  # the lowest keys, whatever file has them
    assert [each["id"] for each in viewed.show("orders", limit=1)] == [1]
    assert Cells(viewed.show("orders", limit=2)._repr_html_()).rows[0] == ["2 rows; there are more"]
    assert Cells(viewed.show("orders", version=0)._repr_html_()).rows == [["0 rows"], ["id", "city"]]
    with pytest.raises(UnknownTable):
        viewed.show("nothing")


@pytest.mark.slow
def test_diff_of_keys_reads_no_other_column_and_counts_keys(viewed, monkeypatch):
    real, read = viewed._writer.rows, []
    monkeypatch.setattr(viewed._writer, "rows", lambda *words, **more: read.append(real(*words, **more)) or read[-1])
    found = viewed.diff("orders", [{"id": 10}, {"id": 10}, {"id": 99}, {"id": 99}], keys_only=True)
    assert [each.column_names for each in read] == [["id"]]
    assert (found.counts.equal, found.counts.missing, found.counts.unexpected) == (1, 1, 2)
    assert str(found).splitlines()[0] == "Orders has other keys than the source: 1 missing, 2 unexpected; 1 equal key"


@pytest.mark.slow
def test_validate_trace_and_diff_are_at_hand(viewed):
    report = viewed.validate()
    assert (report.ok, [table.table for table in report.targets[0].tables]) == (True, ["Empty", "Orders"])
    for key in (2, "2", {"ID": 2}):
        assert [(change.marker, change.effect) for change in viewed.trace("orders", key).changes] == [
            *((0, "inserted"), (1, "updated"))
        ]
    expected = [{"id": 1, "city": "<b>Graz</b> & more"}, {"id": 2}, {"ID": 10, "city": "Linz"}]
    assert not viewed.diff("orders", [row(1)]).equal
    with pytest.raises(UsageError, match="twice"):
        viewed.diff("orders", expected)
    expected[2] = row(10)
    for wanted in (expected, tuple(expected), pa.Table.from_pylist(expected[::-1])):
        assert viewed.diff("orders", wanted).equal
    (viewed.root / "expected.csv").write_text("city,id\nLinz,10\n,2\nVienna,1\n", "utf-8")
    difference = viewed.diff("orders", str(viewed.root / "expected.csv"))
    assert [(each.key, each.cells) for each in difference.different] == [
        ({"id": 1}, [DifferentCell("city", "Vienna", "<b>Graz</b> & more")])
    ]
    for wrong in ([{"id": "one"}], [1], 7, [{"id": 1}, {"id": "one"}]):
        with pytest.raises(UsageError, match="expected"):
            viewed.diff("orders", wrong)


def test_a_key_of_several_columns_and_times_is_traced(tmp_path):
    writer, at = MemoryDeltaWriter(), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    shop = Shop(tmp_path, writer)
    shop.publisher.table("Visits", keys=["who", "at"]).insert({"who": "a=b", "at": at})
    with Mirror(tmp_path, Config(), writer=writer) as mirror:
        mirror.sync()
        assert [change.row for change in mirror.trace("visits", {"at": at, "who": "a=b"}).changes] == [1]
        with pytest.raises(UsageError, match="missing"):
            mirror.trace("visits", {"who": "a"})


@pytest.mark.slow
def test_a_key_of_several_columns_may_be_a_tuple(tmp_path):
    table = LandingZoneWriter(tmp_path).table("Lines", keys=["Order", "Line"])
    table.insert({"Order": 1, "Line": 2, "Sku": "A"}, {"Order": 2, "Line": 1, "Sku": "B"})
    with Mirror(tmp_path, Config(), writer=MemoryDeltaWriter()) as mirror:
        mirror.sync()
        by_name = mirror.trace("Lines", {"Order": 1, "Line": 2})
        assert mirror.trace("Lines", (1, 2)) == mirror.trace("Lines", [1, 2]) == by_name
        with pytest.raises(UsageError, match="key: 1 value, the key is Order, Line"):
            mirror.trace("Lines", (1,))


@pytest.mark.slow
def test_results_are_printed_as_text_and_shown_so_in_a_notebook(tmp_path):
    shop = Shop(tmp_path)
    orders = shop.orders()
    orders.insert(row(1), row(2))
    orders.update({"id": 2, "city": "<b>Graz"})
    with Mirror(tmp_path, writer=shop.writer) as mirror:
        assert str(mirror.sync()).startswith("Applied 2 files (3 rows) to 1 table in 1 commit (")
        assert str(mirror.sync()).startswith("Nothing to apply (")
        trace = mirror.trace("Orders", 2)
        assert str(trace).splitlines()[0] == "Orders, id = 2: 2 changes in 2 files"
        assert str(trace).splitlines()[-1] == "Matches the Delta table."
        assert re.search(r"row 1 +1 update +matched 1 +updated\n +id 2  \*city \S+ -> <b>Graz", str(trace))
        assert trace._repr_html_().startswith("<pre>Orders, id = 2: 2 changes")
        assert "&lt;b&gt;Graz" in trace._repr_html_()
        assert (
            str(mirror.diff("Orders", [row(1), {"id": 2, "city": "<b>Graz"}])) == "Orders is as expected: 2 equal rows"
        )
        assert str(mirror.diff("Orders", [{"id": 2, "city": "Wels"}, {"id": 3, "city": None}])).splitlines() == [
            "Orders differs from expected: 1 missing, 1 unexpected, 1 different; 0 equal rows",
            "  different cells: city 1",
            "",
            "Only in expected",
            "id  city",
            "3   NULL",
            "",
            "Only in actual",
            "id  city",
            f"1   {row(1)['city']}",
            "",
            "Different",
            "id  Column  Expected  Actual",
            "2   city    Wels      <b>Graz",
        ]
        assert re.fullmatch(
            r" +1  2\S+ \S+  \w.*  +3  0+1.parquet, 0+2.parquet", str(mirror.history("Orders")).split("\n")[1]
        )
        assert str(mirror.status()).splitlines()[-1] == "1 table: 1 caught up."
        orders.land(b"", modified_ns=1)
        assert str(mirror.sync()).startswith("Orders is halted: error[ME023]: file is empty (0 bytes)\n  --> ")
        assert re.search(r"Orders +halted +ME023", str(mirror.history()))
        assert "\nOrders: halted, 2 of 3 files applied (3 rows)\n" in mirror.validate()._repr_html_()


KNOWN = {"Any", "Callable", "Mapping", "Path", "Self", "Sequence", "SparkSession", "pa", "threading"}


def test_signatures_of_a_mirror_name_public_types_only():
    methods = {name: value for name, value in vars(Mirror).items() if inspect.isfunction(value)}
    public = [value for name, value in methods.items() if not name.startswith("_") or name == "__init__"]
    assert len(public) > 15
    texts = [text for method in public for text in method.__annotations__.values()]
    trees = [ast.parse(text, mode="eval") for text in texts]
    named = {node.id for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Name)}
    assert named - KNOWN - {*dir(builtins)} <= {*mirror_engine.__all__}


def test_help_on_a_mirror_has_no_internal_names():
    shown = pydoc.render_doc(Mirror, renderer=pydoc.plaintext)
    assert "sync(self" in shown
    assert [line for line in shown.splitlines() if re.search(r"mirror_engine\.|\| +_[a-z]| at 0x", line)] == []


@pytest.mark.slow
def test_cells_of_the_guide_run_in_a_kernel_without_spark(tmp_path):
    """Kernels run cells in an event loop; this one has imported deltalake and pandas, and has no PySpark."""
    (tmp_path / "notebookutils.py").write_text(
        "class credentials:\n    getToken = staticmethod(lambda audience: 'x')\n"
    )
    cells = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(cells) >= 4
    kernel = (
        "import asyncio, sys, deltalake, pandas\nsys.modules['pyspark'] = None\n"
        f"async def run():\n    scope = {{}}\n    for cell in {cells!r}:\n        exec(cell, scope)\n"
        "    print(scope['mirror'].root)\nasyncio.run(run())\n"
    )
    (tmp_path / "kernel.py").write_text(kernel)
    program = str(Path(sys.executable).with_name("mirror-engine"))
    command = [program, "emulator", "exec", str(tmp_path / "onelake"), "--", sys.executable, "kernel.py"]
    around = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, cwd=tmp_path, env=around, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "[{'id': 1, 'city': 'Linz'}, {'id': 2, 'city': 'Graz'}]\n" in done.stdout
    assert "abfss://Workspace@onelake.dfs.fabric.microsoft.com/Mirror.MountedRelationalDatabase" in done.stdout


def test_package_imported_before_its_update_asks_for_a_restart(tmp_path, monkeypatch):
    """Found with deltalake 0.18, which Fabric's kernels bring: every table failed with an internal error."""
    old = ModuleType("deltalake")
    old.__version__ = "0.18.2"
    monkeypatch.setitem(sys.modules, "deltalake", old)
    with pytest.raises(
        SetupError, match=r"deltalake 0\.18\.2 was imported before \d+\.\d+\.\d+ was installed"
    ) as raised:
        Mirror(tmp_path)
    assert "restartPython()" in raised.value.help


def test_spark_connect_session_is_refused_at_once(tmp_path):
    """One of PySpark if its packages for Connect are here, else an object of a class in the same place."""
    try:
        from pyspark.sql.connect.session import SparkSession  # noqa: PLC0415 - needs grpc
    except (ImportError, SystemExit):  # which PySpark raises in a process without a main module
        SparkSession = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})  # noqa: N806 - as above
    with pytest.raises(UsageError, match="Spark Connect session") as raised:
        Mirror(tmp_path, spark=SparkSession.__new__(SparkSession))
    assert "merge_engine='arrow'" in raised.value.help
