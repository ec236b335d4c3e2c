"""`compare` through OneLake's table API, and against what SQL shows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.csv
import pytest
from deltalake import write_deltalake
from starlette.testclient import TestClient

from mirror_engine import Config
from mirror_engine.errors import StorageUnavailable, UsageError
from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.mirror import Mirror
from mirror_engine.onelake.engine_pool import EnginePool
from mirror_engine.onelake.items import Items
from mirror_engine.onelake.options import ServerPlan
from mirror_engine.onelake.serving import Server
from mirror_engine.onelake.store import LocalStore
from mirror_engine.onelake.table_api import table_app
from mirror_engine.storage.local import LocalStorage
from mirror_engine.storage.store_url import local_folder
from mirror_engine.storage.stores import parse_url
from mirror_engine.tables.merge.arrow import ArrowWriter
from mirror_engine.testing.landing_zone_writer import LandingZoneWriter
from mirror_engine.tools.compare.fabric_tables import ApiTables, StorageTables
from mirror_engine.tools.compare.zone import compare_zone
from mirror_engine.tools.difference import RowCounts

pytestmark = pytest.mark.slow  # whole programs: no part of the quick look

TYPES = {"Id": pa.int64(), "City": pa.string()}
NEW, OLD = [(1, "Linz"), (2, "Wels")], [(1, "Graz")]


def rows(*pairs):
    return pa.table({"Id": pa.array([key for key, _ in pairs], pa.int64()), "City": [city for _, city in pairs]})


class InProcess(TestClient):
    """An app that answers without a network, and so without time limits."""

    def request(self, method, url, timeout, **options):  # noqa: ARG002 - of a network
        return super().request(method, url, **options)


class Lake:
    """A store with a mirrored database `shop/orders`, whose table `sell/Orders` another program wrote."""

    def __init__(self, folder):
        self.store = folder / "store"
        items = Items(LocalStore(self.store))
        self.item = items.ensure("shop", "orders")
        self.root = self.store / "shop/orders"
        self.table = self.root / TABLES / "sell/Orders"
        table = LandingZoneWriter(self.root).table("sell.Orders", keys=["Id"], types=TYPES)
        table.insert({"Id": 1, "City": "Graz"})
        table.apply_changes((4, {"Id": 1, "City": "Linz"}), (4, {"Id": 2, "City": "Wels"}))
        with Mirror(self.root, Config(), writer=ArrowWriter(self.root / TABLES, self.root / SCRATCH)) as mirror:
            mirror.sync()
        self.work = folder / "work"
        client = InProcess(table_app(EnginePool(ServerPlan(self.store, has_engines=False), items)))
        url = parse_url("abfss://shop@onelake.dfs.fabric.microsoft.com/orders.MirroredDatabase")
        self.received = []
        self.api = ApiTables(url, self.received.append, client)

    def plant(self, *pairs):
        write_deltalake(str(self.table), rows(*pairs), mode="overwrite")

    def compare(self, fabric=None, sql_rows=None, tables=("sell.Orders",)):
        options = {"tables": tables, "sql_rows": sql_rows}
        found = compare_zone(LocalStorage(self.root), fabric or self.api, Config(), self.work, **options)
        return next(found)

    def sql(self, *pairs):
        """A file with what SQL shows."""
        path = self.work.parent / "sql.csv"
        pa.csv.write_csv(rows(*pairs), path)
        return path


@pytest.fixture(autouse=True)
def _token(tmp_path, monkeypatch):
    monkeypatch.setenv("AZURE_STORAGE_TOKEN", "any")
    monkeypatch.setenv("MIRROR_ENGINE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def database(tmp_path):
    return Lake(tmp_path)


def test_the_table_api_reads_what_storage_reads(database):
    stored = StorageTables(ArrowWriter(database.root / TABLES, database.root / SCRATCH))
    assert database.api.tables() == stored.tables() == ["sell/Orders"]
    read, expected = (way.pin("sell/Orders")().sort_by("Id") for way in (database.api, stored))
    assert read.equals(expected)
    assert sum(database.received) > 0
    assert database.api.pin("sell/None") is None


def test_a_pinned_table_is_read_as_it_was(database):
    read = database.api.pin("sell/Orders")
    database.plant(*OLD)
    assert read().num_rows == 2


def test_difference_is_found_through_the_table_api(database):
    assert database.compare().verdict == "equal"
    database.plant((1, "Linz"))
    found = database.compare()
    assert (found.verdict, found.differs_in) == ("different", "delta")
    assert found.counts.missing == 1


@pytest.mark.parametrize(
    ("delta", "sql", "where"),
    [(NEW, NEW, None), (NEW, OLD, "sql"), (OLD[:0], OLD[:0], "delta"), (OLD[:0], OLD, "both")],
)
def test_a_difference_is_in_delta_or_in_sql_alone(database, delta, sql, where):
    if delta != NEW:
        database.plant(*delta, (7, "Enns"))
        sql = [*sql, (7, "Enns")]
    found = database.compare(sql_rows=database.sql(*sql))
    assert found.differs_in == where


def test_what_sql_lacks_is_counted_by_key(database):
    found = database.compare(sql_rows=database.sql((1, "Graz"), (9, "Enns")))
    assert (found.key, found.sql.counts) == (("Id",), RowCounts(0, 1, 1, 1))


def test_what_sql_shows_is_of_one_table(database):
    folder = database.root / TABLES / "sell/Stores"
    write_deltalake(str(folder), rows(*OLD))
    with pytest.raises(UsageError, match="--sql-rows is what SQL shows of one table"):
        database.compare(sql_rows=database.sql(*NEW), tables=())
    with pytest.raises(UsageError, match="have no table sell/Stores both"):
        database.compare(sql_rows=database.sql(*NEW), tables=("sell.Stores",))
    with pytest.raises(UsageError, match="found no file"):
        database.compare(sql_rows=database.work / "absent.csv")


def test_types_that_say_the_same_are_no_difference(database):
    written = {
        "City": pa.large_string(),
        "At": pa.timestamp("ms", "Etc/UTC"),
        "Tag": pa.dictionary(pa.int8(), pa.string()),
    }
    table = pa.table({name: pa.array([], kind) for name, kind in written.items()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    answers = [answered(json={"streams": [{"streamId": "a/b"}]}), answered(content=sink.getvalue().to_pybytes())]
    api = ApiTables(database.api.url, session=Scripted(answers))
    assert api.pin("sell/Orders")().schema.types == [pa.string(), pa.timestamp("us", "UTC"), pa.string()]
    assert api.session.asked[1].endswith("/schemas/sell/tables/Orders/readStream/a%2Fb")


def stream(kind):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema({"Id": kind})):
        pass
    return sink.getvalue().to_pybytes()


def answered(status_code=200, json=None, content=b""):
    return SimpleNamespace(status_code=status_code, json=lambda: json, content=content)


class Scripted:
    """Answers requests one after the other."""

    def __init__(self, answers):
        self.answers, self.asked = iter(answers), []

    def request(self, _, url, **__):
        self.asked.append(url)
        return next(self.answers)


@pytest.mark.parametrize(
    "answer",
    [
        {"streamIds": ["a", "b"]},
        {"sessionId": "x", "expiresAt": "y", "streams": [{"id": "a"}, {"id": "b", "rows": 4}]},
        {"streams": [{"StreamId": "a"}, {"StreamId": "b"}]},
    ],
)
def test_stream_identifiers_are_read_whatever_their_name(database, answer):
    api = ApiTables(database.api.url, session=Scripted([answered(json=answer), answered(404)]))
    with pytest.raises(StorageUnavailable, match=r"the read session has ended\n.* an hour, or VACUUM"):
        api.pin("sell/Orders")()
    assert api.session.asked[1].endswith("/readStream/a")


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([answered(401)], "the credential is not accepted"),
        ([answered(403)], "this identity has no permission"),
        ([answered(503)], "the store is busy"),
        ([answered(json=[])], "names no streams"),
        ([answered(json={"a": ["x"], "b": ["y"]})], "names no streams"),
        ([answered(json={"streams": [1]})], "names no streams"),
        ([answered(json={"streams": []})], "names no streams"),
        (
            [answered(json={"streams": ["a", "b"]}), *(answered(content=stream(kind)) for kind in ("int64", "string"))],
            "different columns",
        ),
        ([answered(json={"streams": ["a"]}), answered(content=b"no Arrow")], "not an Arrow stream"),
    ],
)
def test_a_read_that_fails_says_why(database, answers, words):
    api = ApiTables(database.api.url, session=Scripted(answers))
    with pytest.raises(StorageUnavailable, match=words):
        api.pin("sell/Orders")()


@pytest.mark.parametrize(
    ("answer", "words"), [(answered(404), "there is no such item"), (answered(json={"x": 1}), "is not understood")]
)
def test_a_list_that_fails_says_why(database, answer, words):
    with pytest.raises(StorageUnavailable, match=words):
        ApiTables(database.api.url, session=Scripted([answer])).tables()


@pytest.mark.parametrize(
    "place", ["shop", "abfss://a@b.dfs.core.windows.net/x", "abfss://a@onelake.dfs.fabric.microsoft.com/x/Files"]
)
def test_only_a_mirrored_database_in_onelake_has_a_table_api(place):
    with pytest.raises(UsageError, match="--through table-api reads mirrored databases in OneLake"):
        ApiTables.at(parse_url(place) or local_folder(place), lambda _: None)


def test_report_says_that_sql_alone_differs(database, cli):
    shown = ("compare", database.root, "sell.Orders", "--sql-rows", database.sql(*OLD))
    code, text, error = cli(*shown)
    assert (code, error) == (3, "")
    assert "sell.Orders: equal" in text
    assert "SQL: alone differs, Delta does not: 1 missing, 0 unexpected, 1 different; 0 equal rows" in " ".join(
        text.split()
    )
    assert "refresh the metadata of the SQL endpoint" in text
    document = json.loads(cli(*shown, "--json")[1])
    [table] = document["tables"]
    assert (document["equal"], document["through"], table["verdict"], table["differs_in"]) == (
        False,
        "storage",
        "equal",
        "sql",
    )
    assert table["sql"]["counts"] == {"equal": 0, "missing": 1, "unexpected": 0, "different": 1}
    assert "Graz" not in json.dumps(document)


def test_report_says_that_a_difference_is_in_delta(database, cli):
    database.plant((1, "Linz"))
    code, text, _ = cli("compare", database.root, "sell.Orders", "--sql-rows", database.sql((1, "Linz")))
    assert code == 3
    assert "SQL: shows the rows of Delta: the difference is in Delta" in " ".join(text.split())


def test_column_that_sql_lacks_is_a_difference(database, cli):
    path = database.sql(*NEW)
    pa.csv.write_csv(rows(*NEW).select(["Id"]), path)
    code, text, _ = cli("compare", database.root, "sell.Orders", "--sql-rows", path)
    assert (code, "lacks the columns City" in text) == (3, True)


@pytest.mark.nightly
def test_a_client_reads_the_table_api_by_production_s_name(database):
    with Server(ServerPlan(database.store, has_engines=False), on_error=pytest.fail) as server:
        url = f"abfss://{database.item.workspace.id}@onelake.dfs.fabric.microsoft.com/{database.item.id}"
        words = [sys.executable, "-m", "mirror_engine", "compare", url, "--through", "table-api", "--progress", "none"]
        environment = server.connection.around({name: os.environ[name] for name in ("PATH", "MIRROR_ENGINE_CACHE")})
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "sell.Orders: equal; 2 equal rows from 2 files" in done.stdout
    assert "These are the rows of Delta." in done.stdout
