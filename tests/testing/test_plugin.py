"""The pytest plugin: its fixtures, options and failure reports, in runs of pytest of their own."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from deltalake import DeltaTable  # pytester unloads what its runs load, and Rust and C modules load only once

import mirror_engine.testing.scenarios  # noqa: F401 - as above

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow  # whole programs: no part of the quick look

FAILING = """
import pytest


def test_left_halted(mirror, landing_zone):
    landing_zone.table("Orders", keys=["id"]).apply_changes((3, {"id": 1}))
    mirror.sync()


def test_left_blocked(mirror, landing_zone):
    orders = landing_zone.table("Orders", keys=["id"])
    orders.skip_numbers()
    orders.initial_load({"id": 1})
    mirror.sync()


def test_left_unusable(mirror, landing_zone):
    landing_zone.folder("Orders").land_metadata(b"{")
    mirror.sync()


def test_compared_while_halted(mirror, landing_zone):
    orders = landing_zone.table("Orders", keys=["id"])
    orders.initial_load({"id": 1, "city": "Linz"})
    orders.apply_changes((3, {"id": 1, "city": "Wels"}))
    mirror.sync()
    assert mirror.table("orders").rows() == [{"id": 1, "city": "Wels"}]


def test_not_halted_as_expected(mirror, landing_zone):
    landing_zone.table("Orders", keys=["id"]).initial_load({"id": 1})
    mirror.expect_halted("Orders", "ME037")
    mirror.expect_blocked("Items")
    mirror.sync_until_caught_up()


def test_halted_for_another_reason(mirror, landing_zone):
    landing_zone.table("Orders", keys=["id"]).land(b"")
    mirror.expect_halted("Orders", "ME037")
    mirror.sync()


@pytest.mark.mirror_config(strikt=True)
def test_misspelt_option(mirror):
    pass


writer = pytest.mark.mirror_writer
MARKS = [
    writer("sprak"), writer(name="sparkk"), writer, writer("memory", name="spark"), writer(["spark"]),
]


@pytest.mark.parametrize("_", [pytest.param(0, marks=mark) for mark in MARKS])
def test_misspelt_writer(mirror, _):
    pass


def test_no_rows(mirror, landing_zone):
    landing_zone.table("Orders", keys=["id"]).initial_load({"id": 1})
    mirror.sync_until_caught_up()
    assert mirror.table("orders").rows() == [1, 2]


def test_no_cell(mirror, landing_zone):
    landing_zone.table("Orders", keys=["id"]).initial_load({"id": 1})
    mirror.sync_until_caught_up()
    assert mirror.table("orders").rows() == [{"id": [1]}]


def test_failed_itself(mirror, landing_zone):
    landing_zone.folder("Orders").initial_load({"id": 1})
    mirror.sync()
    pytest.fail("something else")
"""


def test_a_failed_test_reports_the_state_of_its_mirror(pytester):
    pytester.makepyfile(FAILING)
    done = pytester.runpytest_inprocess()
    done.assert_outcomes(failed=9, errors=6)
    done.stdout.fnmatch_lines(
        [
            "*mirror_config: 1 *option*",
            "*strikt*strict*",
            "*mirror_writer: found 'sprak', allowed memory, arrow, spark",
            "*mirror_writer: found 'sparkk', allowed memory, arrow, spark",
            "*mirror_writer: found nothing, allowed memory, arrow, spark",
            "*mirror_writer: found 'memory', 'spark', allowed memory, arrow, spark",
            "*mirror_writer: found [[]'spark'[]], allowed memory, arrow, spark",
            "*test_left_halted*",
            "unexpected table states at the end of the test:",
            "  Orders is *00000000000000000001.parquet, row 1: * [[]ME037[]]*",
            "    help: *",
            "  Orders is blocked: *00000000000000000001.parquet*",
            "    help: land it (without rows, if none are needed)*",
            "  Orders *JSON at line 1, *",
            "*AssertionError: assert 1 mirrored rows == 1 expected rows",
            "*different: id=1: city is 'Linz', expected 'Wels'",
            "E*Orders is *00000000000000000002.parquet, row 1: *",
            "  Orders should be halted with ME037: Orders *",
            "  Items should be blocked: there is no such table folder, or several",
            "  Orders should be halted with ME037: Orders is *[[]ME023[]]*",
            "*AssertionError: assert *{'id': 1}* == [[]1, 2[]]",
            "*AssertionError: assert *{'id': 1}* == *{'id': [[]1[]]}*",
            "*something else",
            "*Captured mirror call*",
            "  Orders has no *[[]ME008[]]",
            "    help: *",
        ]
    )


def test_an_expected_halt_or_gap_passes(mirror, landing_zone):
    landing_zone.table("Sales.Orders", keys=["id"]).apply_changes((3, {"id": 1}))
    items = landing_zone.table("Items", keys=["id"])
    items.initial_load({"id": 1})
    items.skip_numbers()
    items.upsert({"id": 2})
    mirror.expect_halted("sales.orders", "ME037")
    mirror.expect_blocked("items")
    mirror.sync_until_caught_up()
    assert [found.code for found in mirror.diagnostics] == ["ME019", "ME037"]
    assert mirror.table("ITEMS").rows() == [{"id": 1}]
    with pytest.raises(ValueError, match="ME999"):
        mirror.expect_halted("Orders", "ME999")


def test_what_cannot_be_read_is_reported_with_the_reason(mirror, landing_zone):
    landing_zone.table("Items", keys=["id"])
    mirror.sync_until_caught_up()
    with pytest.raises(Exception, match=r"(?s)Item.*Items has metadata but no change files"):
        mirror.table("Item").rows()
    (landing_zone / "Orders").mkdir()
    with open(f"{landing_zone}/Orders/{1:020d}.parquet", "wb") as file:  # noqa: PTH123 - as a publisher may
        file.write(b"x")
    with pytest.raises(AssertionError, match=r"(?s)has not caught up.*Orders has no .*ME008.*help: "):
        mirror.sync_until_caught_up()


def test_a_table_is_read_when_asked(mirror, landing_zone):
    table = mirror.table("Orders")
    orders = landing_zone.table("Orders", keys=["id"])
    orders.initial_load({"id": 2}, {"id": 1})
    assert mirror.sync_until_caught_up().rows_applied == 2
    orders.delete({"id": 1})
    mirror.sync_until_caught_up()
    assert table.rows() == [{"id": 2}]
    assert table.arrow().num_rows == 1
    assert [entry.rows for entry in table.history()] == [1, 2, 0]
    assert mirror.tables() == ["dbo/Orders"]
    assert mirror.status().tables[0].row_count == 1


def test_diagnostics_below_the_minimum_severity_pass(mirror, landing_zone):
    landing_zone.table("Orders", keys=["id"]).initial_load({"id": 1})
    landing_zone.table("Orders", keys=["id"]).put("00000000000000000002.txt", b"x")
    landing_zone.put("Loose.parquet", b"x")
    mirror.sync_until_caught_up()
    mirror.assert_no_diagnostics(min_severity="error")
    mirror.assert_no_diagnostics(min_severity="warning", ignore=["ME002"])
    with pytest.raises(
        AssertionError, match=r"(?s)unexpected diagnostics:\n  warning: Loose.parquet.*\n    help: move it .*$"
    ):
        mirror.assert_no_diagnostics(min_severity="warning")
    with pytest.raises(AssertionError, match="ME021"):
        mirror.assert_no_diagnostics()


def test_changes_to_keys_that_were_never_inserted_are_reported_as_by_validate(mirror, landing_zone):
    orders = landing_zone.table("Orders", keys=["id"])
    orders.initial_load({"id": 1})
    orders.update({"id": 2})
    mirror.assert_no_diagnostics()  # no sync yet
    mirror.sync_until_caught_up()
    orders.delete({"id": 3})
    mirror.sync_until_caught_up()
    mirror.assert_no_diagnostics(min_severity="error")
    mirror.assert_no_diagnostics(ignore=["ME077", "ME078"])
    with pytest.raises(AssertionError) as raised:
        mirror.assert_no_diagnostics(min_severity="warning")
    first, _, second, _ = str(raised.value).splitlines()[1:]
    assert re.fullmatch(r"  warning: Orders/00000000000000000002.parquet, row 1: .* \[ME077\]", first)
    assert re.fullmatch(r"  warning: Orders/00000000000000000003.parquet, row 1: .* \[ME078\]", second)


@pytest.mark.mirror_config(strict=True)
@pytest.mark.mirror_config(default_schema="main", strict=False)
def test_the_nearest_marker_s_options_win(mirror):
    assert (mirror.config.default_schema, mirror.config.strict) == ("main", False)


def test_the_marker_wins_over_the_command_line_and_that_over_the_ini_file(pytester):
    pytester.makeini("[pytest]\nmirror_writer = spark\nmirror_config =\n    strict = true\n    default_schema = none\n")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.mirror_config(default_schema="main")
        def test_by_command_line(mirror, landing_zone):
            landing_zone.table("Orders", keys=["id"]).initial_load({"id": 1})
            mirror.sync_until_caught_up()
            assert mirror.tables() == ["main/Orders"]
            assert mirror.config.strict
            assert not [*mirror.root.rglob("_delta_log")]

        @pytest.mark.mirror_writer("spark")
        class TestMarked:
            @pytest.mark.mirror_writer(name="memory")
            def test_by_marker(self, mirror, landing_zone):
                landing_zone.table("Orders", keys=["id"]).initial_load({"id": 1})
                mirror.sync_until_caught_up()
                assert not [*mirror.root.rglob("_delta_log")]
        """
    )
    pytester.makepyfile(test_plain="def test_x(mirror): assert mirror.config.default_schema == 'none'")
    pytester.runpytest_inprocess("--mirror-writer=memory").assert_outcomes(passed=3)


def test_the_plugin_loads_nothing_of_the_engine():
    probe = (
        "import sys\nimport pytest, mirror_engine.testing.plugin\n"
        "print([n for n in ('pyarrow', 'pyspark', 'numpy', 'sqlite3', 'mirror_engine.mirror') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.mirror_writer("arrow")
def test_marker_selects_arrow_which_writes_delta_tables(mirror, landing_zone):
    orders = landing_zone.table("Orders", keys=["id"])
    orders.initial_load({"id": 1, "city": "Linz"})
    orders.upsert({"id": 1, "city": "Bellevue"})
    mirror.sync_until_caught_up()
    assert mirror.config.merge_engine == "arrow"
    written = DeltaTable(str(mirror.root / "Tables/dbo/Orders")).to_pyarrow_table().to_pylist()
    assert mirror.table("Orders").rows() == written == [{"id": 1, "city": "Bellevue"}]


@pytest.mark.spark
@pytest.mark.mirror_writer("spark")
def test_a_marker_selects_spark(mirror, landing_zone, spark):
    assert spark
    orders = landing_zone.table("Sales.Orders", keys=["id"])
    orders.initial_load({"id": 1, "city": "Linz"})
    orders.upsert({"id": 1, "city": "Bellevue"})
    mirror.sync_until_caught_up()
    assert mirror.table("sales.orders").rows() == [{"id": 1, "city": "Bellevue"}]
    assert list((mirror.root / "Tables/Sales/Orders/_delta_log").glob("*.json"))
