"""Landing zones as beginners break them, one mistake each; `broken_zones.txt` has what `validate` says of each.

`python tests/broken_zones.py` prints that file as the messages are now: read every line of the difference.
"""

from __future__ import annotations

import gzip
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count

import pyarrow as pa
import pyarrow.parquet as pq

ZONE = "Files/LandingZone"
NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
_unique = count(1)


def number(value, extension="parquet"):
    return f"{value:020}.{extension}"


def parquet(columns, types=None):
    """A Parquet file of these columns, with the types given for some of them; every one has another content."""
    arrays = {name: pa.array(values, (types or {}).get(name)) for name, values in columns.items()}
    return written(pa.table(arrays).replace_schema_metadata({"n": str(next(_unique))}))


def written(table):
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def items(ids=(1, 2), names=("a", "b"), markers=None, id_type="int64", **more):
    """Rows of the table Items."""
    marked = {} if markers is None else {"__rowMarker__": list(markers)}
    types = {"id": id_type, "name": pa.string(), "__rowMarker__": pa.int32()}
    return parquet({"id": list(ids), "name": list(names), **more, **marked}, types)


def metadata(keys=("id",), **properties):
    keys = {} if keys is None else {"keyColumns": list(keys)}
    return json.dumps({**keys, **properties}).encode()


COLUMNS = [
    {"Name": "id", "DataType": "Int32", "IsNullable": False},
    {"Name": "name", "DataType": "String", "IsNullable": True},
]


def text_metadata(keys=("id",), columns=COLUMNS, **options):
    return metadata(
        keys, FileFormat="CSV", SchemaDefinition={"Columns": columns}, FileFormatTypeProperties=dict(options)
    )


def columns_of(*names, kind="String", nullable=True):
    return [{"Name": name, "DataType": kind, "IsNullable": nullable} for name in names]


def id_and(name, kind):
    return [COLUMNS[0], *columns_of(name, kind=kind)]


def table(*files, meta=None, folder="Items"):
    """A table folder of files in their order, of Parquet."""
    numbered = {f"{folder}/{number(at)}": content for at, content in enumerate(files, 1)}
    return {f"{folder}/_metadata.json": meta or metadata(), **numbered}


def at(*paths, meta=None):
    """The table Items, with the same rows at these paths."""
    return {"Items/_metadata.json": meta or metadata(), **{f"Items/{path}": items() for path in paths}}


def text(*files, meta=None, folder="Items"):
    """The same of CSV: texts, or bytes as they are."""
    numbered = {
        f"{folder}/{number(at, 'csv')}": content if isinstance(content, bytes) else content.encode()
        for at, content in enumerate(files, 1)
    }
    return {f"{folder}/_metadata.json": meta or text_metadata(), **numbered}


def not_null(columns):
    """A Parquet file whose columns are all NOT NULL."""
    table = pa.table(columns)
    return written(table.cast(pa.schema([field.with_nullable(False) for field in table.schema])))


SAME = items()
NULLABLE, NOT_NULL = columns_of("id", "name"), columns_of("id", "name", nullable=False)

ZONES = {
    # names and places
    "gap": table(items()) | {f"Items/{number(3)}": items([3], "c")},
    "gap-at-the-beginning": at(number(2)),
    "number-of-19-digits": table(items()) | {f"Items/{2:019}.parquet": items([3], "c")},
    "number-of-one-digit": at("1.parquet"),
    "number-zero": at(number(0)),
    "name-of-words": at("part-00000-abc.parquet"),
    "name-with-a-codec": at(f"{1:020}.snappy.parquet"),
    "name-with-a-hyphen": at(f"{1:020}-0.parquet"),
    "name-without-an-extension": at(f"{1:020}"),
    "name-that-ends-in-a-blank": at(f"{number(1)} "),
    "extension-parq": at(f"{1:020}.parq"),
    "parquet-in-gzip": table(gzip.compress(items(), mtime=0)),
    "parquet-in-gzip-with-its-extension": {
        "Items/_metadata.json": metadata(),
        f"Items/{1:020}.parquet.gz": gzip.compress(items(), mtime=0),
    },
    "csv-in-gzip-with-its-extension": {
        "Items/_metadata.json": text_metadata(),
        f"Items/{1:020}.csv.gz": gzip.compress(b"id,name\r\n1,a\r\n", mtime=0),
    },
    "csv-in-snappy-with-its-extension": {
        "Items/_metadata.json": text_metadata(),
        f"Items/{1:020}.csv.snappy": pa.compress(b"id,name\r\n1,a\r\n", codec="snappy", asbytes=True),
    },
    "csv-in-a-parquet-folder": {"Items/_metadata.json": metadata(), f"Items/{number(1, 'csv')}": b"id,name\r\n1,a\r\n"},
    "parquet-in-a-csv-folder": {"Items/_metadata.json": text_metadata(), f"Items/{number(1)}": items()},
    "extension-in-upper-case": at(f"{1:020}.PARQUET"),
    "no-metadata": {f"Items/{number(1)}": items()},
    "metadata-without-underscore": {"Items/metadata.json": metadata(), f"Items/{number(1)}": items()},
    "metadata-with-another-ending": {"Items/_metadata.jsn": metadata(), f"Items/{number(1)}": items()},
    "metadata-in-upper-case": {"Items/_Metadata.json": metadata(), f"Items/{number(1)}": items()},
    "metadata-in-the-plural": {"Items/_metadatas.json": metadata(), f"Items/{number(1)}": items()},
    "metadata-at-the-top": {"_metadata.json": metadata(), f"Items/{number(1)}": items()},
    "schema-without-suffix": {f"HR/{path}": content for path, content in table(items(), folder="People").items()},
    "schema-suffix-in-upper-case": table(items(), folder="shop.Schema/Items"),
    "schema-suffix-misspelled": table(items(), folder="shop.schemas/Items"),
    "schema-in-a-schema": table(items(), folder="a.schema/b.schema/Items"),
    "schema-in-a-folder-of-the-database": table(items(), folder="MyDb/shop.schema/Items"),
    "landing-zone-in-the-landing-zone": table(items(), folder="Files/LandingZone/Items"),
    "schema-before-a-dot": table(items(), folder="shop.Items"),
    "schema-before-a-dot-and-as-a-folder": table(items(), folder="shop.Items")
    | table(items(), folder="shop.schema/Items"),
    "table-with-an-underscore": table(items(), folder="_Items"),
    "files-at-the-top": {"_metadata.json": metadata(), number(1): items()},
    "partner-events-in-a-table": {**table(items()), "Items/_partnerEvents.json": b"{}"},
    "partition-folder-without-the-flag": at(f"day=1/{number(1)}", f"day=2/{number(1)}"),
    "partition-folder-without-a-column": at(f"2026/{number(1)}", meta=metadata(isPartitionEnabled=True)),
    "partition-folders-of-two-columns": at(
        f"day=1/{number(1)}", f"date=2/{number(1)}", meta=metadata(["id", "day"], isPartitionEnabled=True)
    ),
    "partition-folder-that-repeats-its-column": at(
        f"day=1/Day=2/{number(1)}", meta=metadata(["id", "day"], isPartitionEnabled=True)
    ),
    "file-outside-partitions": at(f"day=1/{number(1)}", number(1), meta=metadata(isPartitionEnabled=True)),
    "empty-zone": {},
    "table-without-files": {"Items/_metadata.json": metadata()},
    "temporary-name-left": {**table(items()), "Items/_tmp.parquet": items([3], "c")},
    # metadata
    "json-with-a-comma-too-many": table(items(), meta=b'{\n  "keyColumns": ["id"],\n}\n'),
    "json-that-is-html": table(items(), meta=b"<html>403</html>"),
    "json-in-single-quotes": table(items(), meta=b"{'keyColumns': ['id']}"),
    "json-with-a-comment": table(items(), meta=b'{\n  // the key\n  "keyColumns": ["id"]\n}'),
    "json-empty": table(items(), meta=b"") | {"Items/_metadata.json": b""},
    "json-too-large": table(items(), meta=metadata(x="a" * 1024 * 1024)),
    "keyColumns-as-text": table(items(), meta=b'{"keyColumns": "id"}'),
    "keyColumns-of-objects": table(items(), meta=b'{"keyColumns": [{"name": "id"}]}'),
    "keyColumns-in-an-object": table(items(), items(markers=[1, 1]), meta=b'{"properties": {"keyColumns": ["id"]}}'),
    "keyColumns-among-text-options": text("id,name\r\n1,a\r\n", meta=text_metadata(None, keyColumns=["id"])),
    "keyColumn": table(items(), items(markers=[1, 1]), meta=b'{"keyColumn": ["id"]}'),
    "keyColumn-with-inserts-only": table(items(), meta=b'{"keyColumn": ["id"]}'),
    "primaryKey": table(items(), items(markers=[1, 1]), meta=b'{"primaryKey": ["id"]}'),
    "key-columns-with-an-underscore": table(items(), items(markers=[1, 1]), meta=b'{"key_columns": ["id"]}'),
    "keys-missing-though-updates-come": table(items(), items(markers=[1, 1]), meta=b"{}"),
    "key-misspelled": table(items(), meta=metadata(["idd"])),
    "key-in-other-case": table(items(), meta=metadata(["ID"])),
    "key-absent": table(items(), meta=metadata(["customer"])),
    "strategy-misspelled": table(items(), meta=metadata(fileDetectionStrategy="LastUpdateTime")),
    "boolean-as-text": table(items(), meta=metadata(isUpsertDefaultRowMarker="true")),
    "boolean-as-number": table(items(), meta=metadata(isUpsertDefaultRowMarker=1)),
    "format-misspelled": text("id,name\r\n1,a\r\n", meta=metadata(FileFormat="csvv")),
    "property-misspelled": table(items(), meta=metadata(fileDetectionStrategie="LastUpdateTimeFileDetection")),
    # rows and markers
    "marker-3": table(items(markers=[0, 3])),
    "marker-null": table(items(markers=[0, None])),
    "marker-of-letters": table(parquet({"id": [1], "name": ["a"], "__rowMarker__": ["U"]})),
    "marker-of-type-double": table(parquet({"id": [1], "name": ["a"], "__rowMarker__": [1.0]})),
    "marker-as-text": table(parquet({"id": [1], "name": ["a"], "__rowMarker__": ["4"]})),
    "marker-not-last": table(parquet({"id": [1], "__rowMarker__": pa.array([4], pa.int32()), "name": ["a"]})),
    "duplicate-content": table(SAME, SAME),
    "update-of-an-unknown-key": table(items(), items([9], "z", [1])),
    "delete-of-an-unknown-key": table(items(), items([9], "z", [2])),
    "update-of-some-columns": table(items(), parquet({"id": [1], "__rowMarker__": [1]})),
    "null-in-the-key": table(items([1, None])),
    "insert-of-an-existing-key": table(items(), items([2, 3], "xy")),
    # columns and types
    "type-changed": table(items(), items(id_type="int32")),
    "type-changed-to-text": table(items(), parquet({"id": ["1"], "name": ["a"]})),
    "decimal-of-another-scale": table(
        parquet({"id": [1], "price": [Decimal("1.50")]}), parquet({"id": [2], "price": [Decimal("1.500")]})
    ),
    "column-of-nulls": table(
        parquet({"id": [1], "note": [None]}, {"note": pa.null()}), parquet({"id": [2], "note": ["late"]})
    ),
    "nested-type": table(parquet({"id": [1], "tags": [["a", "b"]]})),
    "wide-decimal": table(parquet({"id": [1], "d": [Decimal(1)]}, {"d": pa.decimal256(50, 10)})),
    "times-lose-their-zone": table(
        parquet({"id": [1], "at": [NOON]}, {"at": pa.timestamp("us", "UTC")}),
        parquet({"id": [2], "at": [NOON.replace(tzinfo=None)]}, {"at": pa.timestamp("us")}),
    ),
    "four-columns-in-other-case": table(
        parquet({"id": [1], "a": [1], "b": [1], "c": [1], "d": [1]}),
        parquet({"id": [2], "A": [1], "B": [1], "C": [1], "D": [1]}),
    ),
    "not-null-column-comes-late": table(items(), not_null({"id": [3], "name": ["c"], "n": [1]})),
    # quietly right
    "dictionary-and-large-string": table(
        parquet({"id": [1], "name": pa.array(["a"]).dictionary_encode(), "more": pa.array(["x"], pa.large_string())})
    ),
    "milliseconds": table(parquet({"id": [1], "at": [NOON]}, {"at": pa.timestamp("ms", "UTC")})),
    # content
    "empty-file": table(items()) | {f"Items/{number(2)}": b""},
    "half-a-file": table(items()[:-200]),
    "two-parquet-files-in-one": table(2 * items()),
    "html-as-parquet": table(b"<!DOCTYPE html><html><body>403 Forbidden</body></html>"),
    "csv-as-parquet": table(b"id,name\r\n1,a\r\n"),
    "json-as-parquet": table(b'[{"id": 1}]'),
    # text
    "csv-good-with-bom": text(b"\xef\xbb\xbfid,name\r\n1,a\r\n"),
    "csv-without-a-header-and-said-so": text("1,a\r\n2,b\r\n", meta=text_metadata(FirstRowAsHeader=False)),
    "csv-separated-by-semicolons": text("id;name\r\n1;a\r\n"),
    "csv-separated-by-tabs": text("id\tname\r\n1\ta\r\n"),
    "csv-separated-by-bars": text("id|name\r\n1|a\r\n"),
    "csv-separated-by-carets": text("id^name\r\n1^a\r\n"),
    "csv-with-two-byte-order-marks": text(b"\xef\xbb\xbf\xef\xbb\xbfid,name\r\n1,a\r\n"),
    "csv-in-utf-8-as-windows-1252": text("id,name\r\n1,K\u00f6ln\r\n", meta=text_metadata(Encoding="windows-1252")),
    "csv-in-utf-8-as-ascii": text("id,name\r\n1,K\u00f6ln\r\n", meta=text_metadata(Encoding="us-ascii")),
    "csv-in-windows-1252": text(
        "id,name\r\n1,K\u00f6ln\r\n".encode("cp1252"), meta=text_metadata(Encoding="windows-1252")
    ),
    "csv-with-a-separator-at-each-end": text("id,name,\r\n1,a,\r\n"),
    "csv-of-other-names": text("Nummer,name\r\n1,a\r\n"),
    "csv-row-with-a-name-as-the-header": text("name,Linz\r\nb,c\r\n", meta=text_metadata([], NULLABLE)),
    "csv-without-a-header": text("1,a\r\n2,b\r\n"),
    "csv-not-null-column-and-semicolons": text("id;name\r\n1;a\r\n", meta=text_metadata([], NOT_NULL)),
    "csv-Delimiter": text("id;name\r\n1;a\r\n", meta=text_metadata(Delimiter=";")),
    "csv-Separator": text("id;name\r\n1;a\r\n", meta=text_metadata(Separator=";")),
    "csv-columnDelimiter": text("id;name\r\n1;a\r\n", meta=text_metadata(columnDelimiter=";")),
    "csv-header-in-latin-1": text("id,n\u00e4me\r\n1,a\r\n".encode("latin-1")),
    "csv-in-utf-16-with-a-mark": text("id,name\r\n1,a\r\n".encode("utf-16")),
    "csv-in-utf-16": text("id,name\r\n1,a\r\n".encode("utf-16-le")),
    "csv-declared-utf-16": text("id,name\r\n1,a\r\n", meta=text_metadata(Encoding="UTF-16")),
    "csv-undeclared-column": text("id,name,more\r\n1,a,x\r\n"),
    "csv-column-misspelled": text("id,nmae\r\n1,a\r\n"),
    "csv-columns-changed": text("id,name\r\n1,a\r\n", "id,name,more\r\n2,b,x\r\n"),
    "csv-separator-not-known": text("id^name\r\n1^a\r\n", meta=text_metadata(ColumnSeparator="^")),
    "csv-quoteChar": text("id,name\r\n1,a\r\n", meta=text_metadata(quoteChar="'")),
    "csv-lineTerminator": text("id,name\n1,a\n", meta=text_metadata(lineTerminator="\n")),
    "csv-charset": text("id,name\r\n1,\u00e4\r\n".encode("latin-1"), meta=text_metadata(charset="iso-8859-1")),
    "csv-in-latin-1": text("id,name\r\n1,\u00e4\r\n2,b\r\n".encode("latin-1")),
    "csv-encoding-not-known": text("id,name\r\n1,a\r\n", meta=text_metadata(Encoding="latin")),
    "csv-three-fields-for-two": text("id,name\r\n1,a,x\r\n"),
    "csv-one-field-for-two": text("id,name\r\n1\r\n"),
    "csv-comma-in-a-cell": text("id,name\r\n1,Doe, Jane\r\n"),
    "csv-quote-never-closed": text('id,name\r\n1,"a\r\n2,b\r\n'),
    "csv-quote-not-escaped": text('id,name\r\n1,"a "b" c"\r\n'),
    "csv-header-again": text("id,name\r\n1,a\r\nid,name\r\n2,b\r\n"),
    "csv-header-again-among-texts": text(
        "id,name\r\n1,a\r\nid,name\r\n2,b\r\nid,name\r\n", meta=text_metadata(columns=NOT_NULL)
    ),
    "csv-line-ends": text("id,name\n1,a\n2,b\n"),
    "csv-line-ends-other-way": text("id,name\r\n1,a\r\n", meta=text_metadata(RowSeparator="\n")),
    "csv-thousands-separator": text('id,name\r\n"1,000",a\r\n'),
    "csv-decimal-comma": text('id,price\r\n1,"1,5"\r\n', meta=text_metadata(columns=id_and("price", "Double"))),
    "csv-day-as-a-german-writes-it": text(
        "id,day\r\n1,02.11.2026\r\n", meta=text_metadata(columns=id_and("day", "IDate"))
    ),
    "csv-time-of-the-year-0": text(
        "id,at\r\n1,0000-01-01T00:00:00Z\r\n", meta=text_metadata(columns=id_and("at", "DateTime"))
    ),
    "csv-number-too-large": text("id,name\r\n9999999999,a\r\n"),
    "csv-null-in-a-key-of-a-delete": text("id,name,__rowMarker__\r\n1,a,0\r\n", "id,name,__rowMarker__\r\n,a,2\r\n"),
    "csv-null-in-a-not-null-column": text("id,name\r\n1,\r\n", meta=text_metadata(columns=NOT_NULL)),
    "csv-null-in-a-delete": text(
        "id,name,__rowMarker__\r\n1,a,0\r\n", "id,name,__rowMarker__\r\n1,,2\r\n", meta=text_metadata(columns=NOT_NULL)
    ),
    "csv-without-columns": text("id,name\r\n1,a\r\n", meta=metadata(FileFormat="CSV")),
    "csv-type-of-sql": text("id,name\r\n1,a\r\n", meta=text_metadata(columns=columns_of("id", kind="varchar(20)"))),
    "csv-columns-at-the-top": text("id,name\r\n1,a\r\n", meta=metadata(FileFormat="CSV", Columns=COLUMNS)),
    "csv-columns-without-an-object": text(
        "id,name\r\n1,a\r\n", meta=metadata(FileFormat="CSV", SchemaDefinition=COLUMNS)
    ),
    "csv-key-not-declared": text("id,name\r\n1,a\r\n", meta=text_metadata(["code"])),
    "csv-type-misspelled": text(
        "id,name\r\n1,a\r\n", meta=text_metadata(columns=columns_of("id", "name", kind="Integer"))
    ),
    "csv-of-zero-bytes": text(b""),
    "csv-header-alone": text("id,name\r\n"),
    "csv-gzip-then-zeros": text(gzip.compress(b"id,name\r\n1,a\r\n", mtime=0) + b"\0" * 512),
    "csv-gzip-cut-off": text(gzip.compress(b"id,name\r\n1,a\r\n", mtime=0)[:-6]),
    "csv-marker-of-letters": text("id,name,__rowMarker__\r\n1,a,D\r\n"),
    "csv-column-named-twice": text("id,name,NAME\r\n1,a,b\r\n"),
}


def build(root, name):
    """Write a zone below a ROOT."""
    zone = root / ZONE
    zone.mkdir(parents=True)
    (zone / "_partnerEvents.json").write_text('{"partnerName": "me"}')  # so that ME092 is not said of every zone
    for path, content in ZONES[name].items():
        file = zone / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


if __name__ == "__main__":
    import contextlib
    import os
    import sys
    import tempfile
    from pathlib import Path

    from mirror_engine.cli.main import main

    def run(*words):
        sink = io.StringIO()
        with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sink):
            code = main([*words])
        return f"{sink.getvalue()}[{code}]"

    for each in sys.argv[1:] or ZONES:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            build(Path(), each)
            sys.stdout.write(f"# {each}\n{run('validate', '.')}\n\n")
