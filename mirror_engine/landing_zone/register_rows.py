"""The register on what files hold, markers, types and text: ME034 to ME064 (chapters 4 to 6)."""

from __future__ import annotations

from mirror_engine.landing_zone.register_line import ERROR as E
from mirror_engine.landing_zone.register_line import INFO as I
from mirror_engine.landing_zone.register_line import WARNING as W
from mirror_engine.landing_zone.register_line import entry

ENTRIES = (
    entry(
        "ME034",
        W,
        ("LZ-4.10",),
        "`__rowMarker__` is column {position} of {count}",
        "write `__rowMarker__` as the last column",
        strict=E,
    ),
    entry("ME035", W, ("LZ-4.11",), "marker is text in Parquet", "write the marker as int32", strict=E),
    entry(
        "ME036",
        E,
        ("LZ-4.10", "LZ-4.11"),
        "marker of type {found}, or two of them",
        "write one marker column of type int32",
    ),
    entry(
        "ME037",
        E,
        ("LZ-4.12",),
        "row marker is {value}, the protocol knows 0, 1, 2, 4",
        "delete the file and land a corrected one",
    ),
    entry("ME038", E, ("LZ-4.14",), "marker {value} needs keyColumns", "declare keyColumns, or write inserts alone"),
    entry(
        "ME039",
        W,
        ("LZ-4.1", "LZ-4.3"),
        "{count:insert} of a present key, both rows stay",
        "write 4 (upsert), or delete the row first",
    ),
    entry(
        "ME040",
        W,
        ("LZ-4.8",),
        "{count:row} with NULL in key {column}, matching nothing",
        "give every row a value in each key column",
        strict=E,
    ),
    entry(
        "ME041",
        W,
        ("LZ-4.5",),
        "updates lack {columns}, written as NULL",
        "write full rows: an update replaces the whole row",
    ),
    entry(
        "ME042",
        I,
        ("LZ-4.13",),
        "no marker after marker files: {count:insert}",
        "write the markers if these rows are changes",
    ),
    entry(
        "ME043",
        W,
        ("LZ-4.4",),
        "{count:change} to a key with several rows",
        "remove the duplicates: delete the key, then insert its row once",
    ),
    entry(
        "ME044",
        E,
        ("LZ-5.2",),
        "{reason}",
        "delete the file and land it with the first type; for another type delete the folder and land the table anew",
    ),
    entry(
        "ME045",
        W,
        ("LZ-5.8", "LZ-5.9"),
        "all-NULL column {column} reads as integer",
        "write the column with its real type, NULL or not",
        strict=E,
    ),
    entry("ME046", E, ("LZ-5.5", "LZ-6.5"), "not-null column {column} is missing, or new", "make the column nullable"),
    entry(
        "ME047",
        W,
        ("LZ-5.6",),
        "{column} is not-null here, nullable in the table",
        "keep the column nullable",
        strict=E,
    ),
    entry(
        "ME048",
        E,
        ("LZ-5.6", "LZ-6.8"),
        "NULL in not-null column {column}",
        "declare the column nullable, then delete the folder and land the table anew",
    ),
    entry(
        "ME049",
        E,
        ("LZ-5.8",),
        "{column} has unsupported type {found}",
        "cast the column to a supported type, or write it as JSON text",
    ),
    entry(
        "ME050", W, ("LZ-4.11", "LZ-5.8"), "{column}: {found} taken as {taken_as}", "write it as {taken_as}", strict=E
    ),
    entry(
        "ME051",
        W,
        ("LZ-5.10",),
        "{column} mixes UTC and naive times",
        "write all times of the column one way, best as UTC",
        strict=E,
    ),
    entry(
        "ME052",
        W,
        ("LZ-2.11", "LZ-4.10", "LZ-5.7"),
        "{column} and {other} differ in case, taken as one",
        "spell the name alike everywhere",
        strict=E,
    ),
    entry(
        "ME053", E, ("LZ-5.7",), "{column} and {other} in one file differ only in case", "rename one of the two columns"
    ),
    entry(
        "ME054",
        I,
        ("LZ-5.3",),
        "new: {new}; not sent: {missing}",
        "if a column was renamed, delete the folder and land the table anew; otherwise all is well",
    ),
    entry("ME055", W, ("LZ-5.1",), "codec {found} is not documented", "compress with Snappy, GZIP or ZSTD", strict=E),
    entry("ME056", E, ("LZ-6.1", "LZ-6.2"), "{option} is {found}, allowed {known}", "write one of the allowed values"),
    entry(
        "ME057",
        W,
        ("LZ-6.5",),
        "header column {column} undeclared, ignored",
        "declare it in SchemaDefinition, then delete the folder and land the table anew",
    ),
    entry("ME058", W, ("LZ-6.10",), "header only", ""),
    entry(
        "ME059",
        W,
        ("LZ-6.8",),
        "{column} not key, not nullable: deletes may fail",
        "declare the column with `IsNullable: true`",
    ),
    entry("ME060", E, ("LZ-6.9",), "column {column} is not {type}", "delete the file and land a corrected one"),
    entry("ME061", E, ("LZ-6.4",), "{reason}", "quote and escape the fields as the metadata says"),
    entry(
        "ME062",
        W,
        ("LZ-6.4",),
        "line ends are not RowSeparator",
        "end the lines as RowSeparator says, or declare the line ends that the files have",
    ),
    entry(
        "ME063",
        E,
        ("LZ-6.11",),
        "SchemaDefinition changed at {column}",
        "restore the former SchemaDefinition, or delete the folder and land the table anew",
    ),
    entry(
        "ME064",
        W,
        ("LZ-4.3",),
        "same content as {file}, already applied",
        "send a file once, or write upserts (4), which may be repeated",
    ),
)
