"""Cells of broken files are in no message, log, JSON, history or page: secret ones are landed in every position."""

from __future__ import annotations

import io
import json
import random
from itertools import product
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from starlette.testclient import TestClient

from mirror_engine.cli.log import Log
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.mirror import Mirror
from mirror_engine.onelake.engine_pool import DatabaseStatus, ShownItem
from mirror_engine.onelake.page.web import Web

pytestmark = pytest.mark.slow

WORD, NUMBER = "geheimrat", "731398264"
SECRETS = (WORD, NUMBER, f"{NUMBER[:4]}-{NUMBER}", f"{WORD}@{WORD}.org", f"{WORD[:4]} {WORD}")
NAMES = ("id", "name", "day")
ROW = ("1", "a", "2026-11-02")
MARKER = "__rowMarker__"
SHARE = 1 / 4  # of the broken files, other ones for each secret


def text_metadata(keys, *, nullable, **options):
    types = dict(zip(NAMES, ("Int32", "String", "IDate"), strict=True))
    columns = [{"Name": name, "DataType": kind, "IsNullable": nullable} for name, kind in types.items()]
    properties = {"FileFormat": "CSV", "SchemaDefinition": {"Columns": columns}, "FileFormatTypeProperties": options}
    return json.dumps({"keyColumns": [*keys], **properties}).encode()


def lines(*records, separator=",", end="\r\n"):
    return "".join(separator.join(record) + end for record in records).encode()


def with_cell(record, at, cell):
    return (*record[:at], cell, *record[at + 1 :])


def broken_texts(secret):
    """Texts by what is wrong, each with a secret cell in one position."""
    for at, cell in product(range(4), (secret, f'"{secret}', f'"{secret}"x', f"{secret},{secret}", f"\u00df{secret}")):
        record = (*ROW, "0")
        yield lines((*NAMES, MARKER), with_cell(record, at, cell))
        yield lines((*NAMES, MARKER), record, with_cell(record, at, cell), record)
    for length in (1, 2, 3, 4, 5):  # a row in the place of the header, some of whose cells are names of columns
        for cells in product((secret, *NAMES[:2]), repeat=length):
            if cells.count(secret) == 1 and len({*cells}) < len(NAMES):
                yield lines(cells, cells)
                yield lines(cells, cells, separator=";")
    for separator, end in product(";|\t^", ("\r\n", "\n", "\x85", "\u2028", "\r")):
        yield lines(NAMES, with_cell(ROW, 1, secret), separator=separator, end=end)
    for encoding in ("utf-16", "utf-16-be", "utf-32", "cp1252"):
        yield lines(NAMES, with_cell(ROW, 1, f"\u00e4{secret}")).decode().encode(encoding)
    yield lines((secret, secret), (secret, secret))
    yield lines((secret, "name", secret.upper()), ROW)
    yield f"{secret}\r\n".encode()
    yield lines(NAMES, (secret,) * 5)
    yield b"\0".join([lines(NAMES), secret.encode()])


def parquet(columns, types=(), **options):
    sink = io.BytesIO()
    types = dict(types)
    table = pa.table({name: pa.array(cells, types.get(name)) for name, cells in columns.items()})
    pq.write_table(table, sink, compression="NONE", **options)
    return sink.getvalue()


def broken_parquets(secret):
    """Parquet files by what is wrong, each after a good one that has the secret in a row."""
    good = {"id": [1, 2], "name": [secret, "b"]}
    yield parquet({**good, MARKER: [0, int(NUMBER)]})
    yield parquet({**good, MARKER: ["0", secret]})
    yield parquet({"id": [secret, None], "name": [secret] * 2})
    yield parquet({"id": [1, None], "name": [None, secret]})
    yield parquet({"name": [secret, secret]})
    yield parquet({**good, "more": [{"a": secret}] * 2})
    yield parquet({"id": [9, 9], "name": [secret] * 2, MARKER: [1, 1]}, {MARKER: pa.int32()})
    yield parquet({"id": [9, 9], "name": [secret] * 2, MARKER: [2, 1]}, {MARKER: pa.int32()})
    yield parquet({"id": [1, 1], "name": [secret] * 2, MARKER: [0, 0]}, {MARKER: pa.int32()})
    yield parquet({**good, "at": pa.array([int(NUMBER) * 10**9] * 2).view(pa.timestamp("us"))})
    yield parquet({**good, "at": pa.array([int(NUMBER)] * 2, pa.int32()).view(pa.date32())})
    not_utf8 = pa.array([secret.encode() + b"\xff"] * 2, pa.binary()).view(pa.string())
    yield parquet({"id": [3, 4], "name": not_utf8})
    whole = parquet({"id": [3, 4], "name": [secret] * 2}, use_dictionary=False)
    for at in range(4, len(whole) - 4, 23):
        yield whole[:at] + b"\xff" * 4 + whole[at + 4 :]
        yield whole[:at]


def zone_of(root, secret, chance):
    """Land a quarter of the broken texts and files, each in a table of its own, whose kind is left to chance."""
    tables = 0

    def land(metadata, *files, extension="csv"):
        nonlocal tables
        tables += 1
        folder = root / ZONE / f"T{tables:04}"
        folder.mkdir(parents=True)
        (folder / "_metadata.json").write_bytes(metadata)
        for at, content in enumerate(files, 1):
            (folder / f"{at:020}.{extension}").write_bytes(content)

    for content in filter(lambda _: chance.random() < SHARE, broken_texts(secret)):
        keys = chance.choice([(), ("id",), ("name",)])
        encoding = chance.choice([{}, {}, {"Encoding": "windows-1252"}, {"QuoteCharacter": "'"}])
        land(text_metadata(keys, nullable=chance.random() < 0.5, **encoding), content)
    for content in filter(lambda _: chance.random() < SHARE, broken_parquets(secret)):
        keys = chance.choice([[], ["id"], ["name"]])
        first = [parquet({"id": [1, 2], "name": [secret, "b"]})][: chance.randrange(2)]
        land(json.dumps({"keyColumns": keys}).encode(), *first, content, extension="parquet")
    return tables


def shows(texts, secret):
    """Where a secret is found: what printed it, and the words around it."""
    parts = {secret, secret.upper(), WORD, NUMBER}
    for place, text in texts.items():
        for part in parts:
            if (at := text.find(part)) >= 0:
                yield place, text[max(at - 300, 0) : at + 80]


@pytest.mark.parametrize(
    "secret", [SECRETS[3], *(pytest.param(secret, marks=pytest.mark.nightly) for secret in (*SECRETS[:3], SECRETS[4]))]
)
@pytest.mark.usefixtures("one_attempt")
def test_no_cell_of_a_broken_file_is_shown(tmp_path, secret, cli, caplog):
    root = tmp_path
    assert zone_of(root, secret, random.Random(secret)) > 40
    printed, log = {}, {form: io.StringIO() for form in ("text", "json")}
    for words in (
        "validate",
        "validate --strict",
        "validate --json",
        "validate --format github",
        "validate --format junit",
    ):
        printed[words] = cli(*words.split(), root)
    with Mirror(root, listeners=[Log(form, "debug", stream) for form, stream in log.items()]) as mirror:
        report = mirror.sync()
        printed["repr"] = (0, repr(report), repr(mirror.status()))
        item = ShownItem("1", "Sales", "Shop", DatabaseStatus.RUNNING, "", lambda: Mirror(root))
        page = Web(lambda: [item])
        visitor = TestClient(page.app)
        halted = [table for table in mirror._status().tables if not table.rows_processed]
        assert len(halted) > 30
        for url in ("/", "/metrics", *(f"/tables/1/{table.name.folder}" for table in halted[:: len(halted) // 10])):
            printed[url] = (0, visitor.get(url, headers={"Accept": "application/json"}).text, "")
        assert "T0002" in printed["/"][1]
        page.close()
    for words in ("sync -v", "sync --json", "status", "status -v", "status --json", "plan", "plan --json"):
        printed[words] = cli(*words.split(), root)
    for words in (
        "history",
        "history --json",
        "history T0001",
        f"history {mirror._status().tables[-1].name.normalized}",
    ):
        printed[words] = cli("-C", root, *words.split())
    texts = {words: f"{out}{err}" for words, (_, out, err) in printed.items()}
    texts |= {f"log as {form}": stream.getvalue() for form, stream in log.items()}
    texts["libraries' logs"] = caplog.text
    kept = [*(root / "Files/Monitoring").rglob("*"), *(root / ".mirror-engine").rglob("*")]
    texts |= {str(path): path.read_bytes().decode("latin-1") for path in kept if Path(path).is_file()}
    assert min(map(len, (texts["status"], texts["log as json"], texts["/"], texts["validate"]))) > 3_000
    assert [*shows(texts, secret)] == []
