from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import mirror_engine.publisher.landing_zone_writer  # noqa: F401 - for that alone

# what pytester's runs load stays loaded: Arrow cannot be imported twice

if TYPE_CHECKING:
    from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter
    from mirror_engine.publisher.testing.mirrored import LandingZone, MirrorInTest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow  # whole programs: no part of the quick look

EXAMPLE = """
from mirror_engine.publisher.landing_zone_writer import LandingZoneWriter


class my_publisher:
    @staticmethod
    def export(to):
        LandingZoneWriter(to.parents[1]).table("Sales.Orders", keys=["id"]).initial_load({"id": 1, "city": "Bellevue"})


def test_my_publisher(mirror, landing_zone):
    my_publisher.export(to=landing_zone.path)
    mirror.run_until_level()
    assert mirror.table("sales.Orders").rows() == [{"id": 1, "city": "Bellevue"}]
    mirror.assert_no_diagnostics(above="info")
"""

FAILING = """
import pytest


def test_left_latched(mirror, publisher):
    publisher.table("Orders", keys=["id"]).apply_changes((3, {"id": 1}))
    mirror.run()


def test_left_blocked(mirror, publisher):
    orders = publisher.table("Orders", keys=["id"])
    orders.skip_numbers()
    orders.initial_load({"id": 1})
    mirror.run()


def test_left_unusable(mirror, publisher):
    publisher.folder("Orders").land_metadata(b"{")
    mirror.run()


def test_compared_while_latched(mirror, publisher):
    orders = publisher.table("Orders", keys=["id"])
    orders.initial_load({"id": 1, "city": "Linz"})
    orders.apply_changes((3, {"id": 1, "city": "Wels"}))
    mirror.run()
    assert mirror.table("orders").rows() == [{"id": 1, "city": "Wels"}]


def test_not_latched_as_expected(mirror, publisher):
    publisher.table("Orders", keys=["id"]).initial_load({"id": 1})
    mirror.expect_latched("Orders", "ME037")
    mirror.expect_blocked("Items")
    mirror.run_until_level()


def test_latched_for_another_reason(mirror, publisher):
    publisher.table("Orders", keys=["id"]).land(b"")
    mirror.expect_latched("Orders", "ME037")
    mirror.run()


@pytest.mark.mirror_config(strikt=True)
def test_misspelt_option(mirror):
    pass


@pytest.mark.mirror_writer("sprak")
def test_misspelt_writer(mirror):
    pass


@pytest.mark.mirror_writer(name="sparkk")
def test_misspelt_writer_by_name(mirror):
    pass


@pytest.mark.mirror_writer
def test_no_writer(mirror):
    pass


@pytest.mark.mirror_writer("memory", name="spark")
def test_two_writers(mirror):
    pass


@pytest.mark.mirror_writer(writer="spark")
def test_another_word(mirror):
    pass


@pytest.mark.mirror_writer(["spark"])
def test_no_name(mirror):
    pass


def test_no_rows(mirror, publisher):
    publisher.table("Orders", keys=["id"]).initial_load({"id": 1})
    mirror.run_until_level()
    assert mirror.table("orders").rows() == [1, 2]


def test_no_cell(mirror, publisher):
    publisher.table("Orders", keys=["id"]).initial_load({"id": 1})
    mirror.run_until_level()
    assert mirror.table("orders").rows() == [{"id": [1]}]


def test_failed_itself(mirror, publisher):
    publisher.folder("Orders").initial_load({"id": 1})
    mirror.run()
    pytest.fail("something else")
"""


def test_the_example_passes_without_a_cache_and_with_warnings_as_errors(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(EXAMPLE)
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "-W", "error", "--strict-markers").assert_outcomes(passed=1)


def test_a_failure_says_what_a_person_needs_to_know(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FAILING)
    done = pytester.runpytest_inprocess()
    done.assert_outcomes(failed=9, errors=7)
    done.stdout.fnmatch_lines(
        [
            "*mirror_config: 1 option is wrong:",
            "*strikt: no such option, near strict",
            "*mirror_writer: found 'sprak', allowed memory or spark",
            "*mirror_writer: found name='sparkk', allowed memory or spark",
            "*mirror_writer: found nothing, allowed memory or spark",
            "*mirror_writer: found 'memory', name='spark', allowed memory or spark",
            "*mirror_writer: found writer='spark', allowed memory or spark",
            "*mirror_writer: found [[]'spark'[]], allowed memory or spark",
            "*test_left_latched*",
            "the test leaves tables as it should not:",
            "  Orders is latched: 00000000000000000001.parquet, row 1: row marker is 3, * [[]ME037[]], 1 file unread",
            "    -> Delete the file and land a corrected one.",
            "  Orders is blocked: waits for 00000000000000000001.parquet, 1 file unread",
            "    -> Land 00000000000000000001.parquet, *",
            "  Orders is not a table yet: invalid JSON at line 1, *",
            "*AssertionError: assert 1 mirrored rows == 1 expected rows",
            "*different: id=1: city is 'Linz', expected 'Wels'",
            "E*Orders is latched: 00000000000000000002.parquet, row 1: *",
            "  Orders should be latched with ME037: it is level: everything landed is in the table",
            "  Items should be blocked: there is no such table folder, or more than one",
            "  Orders should be latched with ME037: it is latched: *0 bytes [[]ME023[]]*",
            "*AssertionError: assert *{'id': 1}* == [[]1, 2[]]",
            "*AssertionError: assert *{'id': 1}* == *{'id': [[]1[]]}*",
            "*something else",
            "*Captured mirror call*",
            "  Orders is not a table yet: no `_metadata.json`, 1 file waiting [[]ME008[]]",
            "    -> Land a _metadata.json in the folder; it may come after the files.",
        ]
    )


def test_not_getting_level_is_told_at_the_test_s_own_line(mirror: MirrorInTest, publisher: LandingZoneWriter) -> None:
    publisher.folder("Orders").initial_load({"id": 1})
    with pytest.raises(AssertionError, match=r"(?s)not get level.*Orders is not a table yet.*ME008.*-> Land a _meta"):
        mirror.run_until_level()


def test_a_latch_that_is_expected_passes(mirror: MirrorInTest, publisher: LandingZoneWriter) -> None:
    publisher.table("Sales.Orders", keys=["id"]).apply_changes((3, {"id": 1}))
    publisher.table("Items", keys=["id"]).skip_numbers()
    mirror.expect_latched("sales.orders", "ME037")
    mirror.run_until_level()
    assert [found.code for found in mirror.diagnostics] == ["ME067", "ME037"]


def test_a_gap_that_is_expected_passes(mirror: MirrorInTest, publisher: LandingZoneWriter) -> None:
    orders = publisher.table("Orders", keys=["id"])
    orders.initial_load({"id": 1})
    orders.skip_numbers()
    orders.upsert({"id": 2})
    mirror.run()
    mirror.expect_blocked("orders")
    assert mirror.table("ORDERS").rows() == [{"id": 1}]


def test_an_unknown_code_cannot_be_expected(mirror: MirrorInTest) -> None:
    with pytest.raises(ValueError, match="ME999"):
        mirror.expect_latched("Orders", "ME999")


def test_a_table_that_is_not_there_is_told_with_what_is(mirror: MirrorInTest, publisher: LandingZoneWriter) -> None:
    publisher.table("Orders", keys=["id"])
    mirror.run_until_level()
    with pytest.raises(Exception, match=r"(?s)Order: no such table.*Orders is empty: waits for its first"):
        mirror.table("Order").rows()


def test_a_table_is_read_when_asked(mirror: MirrorInTest, publisher: LandingZoneWriter) -> None:
    table = mirror.table("Orders")
    orders = publisher.table("Orders", keys=["id"])
    orders.initial_load({"id": 2}, {"id": 1})
    assert mirror.run_until_level().rows == 2
    orders.delete({"id": 1})
    mirror.run_until_level()
    assert table.rows() == [{"id": 2}]
    assert table.arrow().num_rows == 1
    assert [entry.rows for entry in table.history()] == [1, 2, 0]
    assert mirror.tables() == ["dbo/Orders"]
    assert mirror.status().tables[0].rows_live == 1


def test_diagnostics_pass_up_to_a_severity(mirror: MirrorInTest, publisher: LandingZoneWriter) -> None:
    publisher.table("Orders", keys=["id"]).initial_load({"id": 1})
    publisher.table("Orders", keys=["id"]).put("00000000000000000002.txt", b"x")
    publisher.put("Loose.parquet", b"x")
    mirror.run_until_level()
    mirror.assert_no_diagnostics(above="warning")
    mirror.assert_no_diagnostics(above="info", ignore=["ME002"])
    with pytest.raises(
        AssertionError,
        match=r"(?s)anything above info\n  warning: Loose.parquet.*\n    -> move it into the table folder.*$",
    ):
        mirror.assert_no_diagnostics(above="info")
    with pytest.raises(AssertionError, match="ME021"):
        mirror.assert_no_diagnostics()


def test_changes_to_keys_that_never_came_are_said_as_validate_says_them(
    mirror: MirrorInTest, publisher: LandingZoneWriter
) -> None:
    orders = publisher.table("Orders", keys=["id"])
    orders.initial_load({"id": 1})
    orders.update({"id": 2})
    mirror.assert_no_diagnostics()  # nothing was run
    mirror.run_until_level()
    orders.delete({"id": 3})
    mirror.run_until_level()
    mirror.assert_no_diagnostics(above="warning")
    mirror.assert_no_diagnostics(ignore=["ME077", "ME078"])
    with pytest.raises(AssertionError) as raised:
        mirror.assert_no_diagnostics(above="info")
    assert [line for line in str(raised.value).splitlines() if "->" not in line] == [
        "the mirror should not say anything above info",
        "  warning: Orders/00000000000000000002.parquet, row 1: 1 update matched no row; inserted instead [ME077]",
        "  warning: Orders/00000000000000000003.parquet, row 1: 1 delete matched no row [ME078]",
    ]


@pytest.mark.mirror_config(strict=True)
@pytest.mark.mirror_config(default_schema="main", strict=False)
def test_the_nearest_marker_s_options_win(mirror: MirrorInTest) -> None:
    assert (mirror.config.default_schema, mirror.config.strict) == ("main", False)


def test_the_landing_zone_goes_where_a_path_does(landing_zone: LandingZone) -> None:
    assert landing_zone.path == landing_zone.root / "Files/LandingZone"
    (landing_zone / "Orders").mkdir()
    with open(f"{landing_zone}/Orders/_x", "wb") as file:  # noqa: PTH123 - as a publisher may
        file.write(b"x")
    assert [path.name for path in landing_zone.path.iterdir()] == ["Orders"]


def test_the_marker_wins_over_the_command_line_and_that_over_the_ini_file(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nmirror_writer = spark\nmirror_config =\n    strict = true\n    default_schema = none\n")
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.mirror_config(default_schema="main")
        def test_by_command_line(mirror, publisher):
            publisher.table("Orders", keys=["id"]).initial_load({"id": 1})
            mirror.run_until_level()
            assert mirror.tables() == ["main/Orders"]
            assert mirror.config.strict
            assert not [*mirror.root.rglob("_delta_log")]

        @pytest.mark.mirror_writer("spark")
        class TestMarked:
            @pytest.mark.mirror_writer(name="memory")
            def test_by_marker(self, mirror, publisher):
                publisher.table("Orders", keys=["id"]).initial_load({"id": 1})
                mirror.run_until_level()
                assert not [*mirror.root.rglob("_delta_log")]
        """
    )
    pytester.makepyfile(test_plain="def test_x(mirror): assert mirror.config.default_schema == 'none'")
    pytester.runpytest_inprocess("--mirror-writer=memory").assert_outcomes(passed=3)


def test_the_plugin_loads_nothing_of_the_engine_and_leaves_others_fixtures_alone() -> None:
    probe = (
        "import sys\nimport pytest, mirror_engine.publisher.testing.plugin\n"
        "print([n for n in ('pyarrow', 'pyspark', 'numpy', 'sqlite3', 'mirror_engine.mirror') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_every_worker_of_xdist_has_its_own_zone(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_a=EXAMPLE, test_b=EXAMPLE, test_c=FAILING)
    done = pytester.runpytest_subprocess("-n", "2", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=2, failed=9, errors=7)
    done.stdout.fnmatch_lines(["*Captured mirror call*"])


@pytest.mark.spark
@pytest.mark.mirror_writer("spark")
def test_a_marker_brings_the_real_writer(mirror: MirrorInTest, publisher: LandingZoneWriter, spark: object) -> None:
    assert spark
    orders = publisher.table("Sales.Orders", keys=["id"])
    orders.initial_load({"id": 1, "city": "Linz"})
    orders.upsert({"id": 1, "city": "Bellevue"})
    mirror.run_until_level()
    assert mirror.table("sales.orders").rows() == [{"id": 1, "city": "Bellevue"}]
    assert list((mirror.root / "Tables/Sales/Orders/_delta_log").glob("*.json"))


@pytest.mark.spark
def test_the_command_line_brings_the_real_writer(pytester: pytest.Pytester, spark: object) -> None:
    assert spark
    pytester.makepyfile(EXAMPLE + "    assert (landing_zone.root / 'Tables/Sales/Orders/_delta_log').is_dir()\n")
    pytester.runpytest_inprocess("--mirror-writer=spark").assert_outcomes(passed=1)
