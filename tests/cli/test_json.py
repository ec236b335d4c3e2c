"""JSON: one document with an envelope for every command, of its schema, as is its documented example."""

from __future__ import annotations

import json

import pytest
from json_examples import ERROR, documents
from json_schemas import faults

from mirror_engine.cli.main import ALL_COMMANDS

pytestmark = pytest.mark.slow
WITHOUT_EXAMPLE = {"run", "doctor", "schema", "emulator start", "emulator stop", "emulator env", "emulator exec"}


def test_every_command_has_an_example():
    assert documents().keys() == {*ALL_COMMANDS, ERROR} - WITHOUT_EXAMPLE
    assert [fault for document in documents().values() for fault in faults(document)] == []


def test_every_command_prints_a_document_of_its_schema(sales, cli, tmp_path):
    zone = sales.root / "Files/LandingZone"
    at = ("-C", sales.root)
    (tmp_path / "expected.csv").write_text("Id,Name\n7,x\n9,y\n")
    sales.publisher.partner_events(partnerName="Acme.Sync")
    cli("sync", sales.root)
    sales.items.update({"Id": 7, "Name": "again"})
    cli("sync", sales.root)
    sales.halt()
    sales.block()
    (zone / "Items/stray.txt").touch()
    (zone / "stray.parquet").touch()
    for words in (
        ("sync", sales.root),
        ("status", sales.root),
        ("status", sales.root, "--table", "Items"),
        ("plan", sales.root),
        ("wait", sales.root, "--timeout", "0"),
        ("show", *at, "Items"),
        ("history", *at, "Items"),
        ("trace", "row", *at, "Items", "7"),
        ("trace", "file", *at, "Items", "2"),
        ("trace", "what-if", *at, "Items", "--skip", "2"),
        ("diff", *at, "Items", tmp_path / "expected.csv"),
        ("diff", *at, "Items", "--keys", tmp_path / "expected.csv"),
        ("compare", sales.root),
        ("pull", sales.root, tmp_path / "copy"),
        ("validate", zone / "Items"),
        ("explain", "ME014"),
        ("rules",),
        ("generate", tmp_path / "made", "--tables", "1", "--for", "0s"),
        ("schema",),
        ("schema", "metadata"),
        ("doctor",),
        ("init", tmp_path / "new"),
        ("maintain", *at, "Items"),
        ("rebuild", sales.root, "--yes", "--lose-rows"),
    ):
        printed = cli(*words, "--json")
        assert printed.out.count("\n") == 1, words
        document = json.loads(printed.out)
        name = document["command"]
        assert list(document)[:2] == ["schema_version", "command"]
        assert words[: len(name.split())] == tuple(name.split())
        assert faults(document) == []
    error = json.loads(cli("show", *at, "Nothing", "--json").err)
    assert (error["command"], faults(error)) == ("show", [])
