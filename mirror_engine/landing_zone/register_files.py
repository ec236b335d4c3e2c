"""The register on the zone, its metadata and its files: ME001 to ME033 (chapters 1 to 3)."""

from __future__ import annotations

from mirror_engine.landing_zone.register_line import ERROR as E
from mirror_engine.landing_zone.register_line import INFO as I
from mirror_engine.landing_zone.register_line import WARNING as W
from mirror_engine.landing_zone.register_line import entry

ENTRIES = (
    entry(
        "ME001",
        W,
        ("LZ-1.1",),
        "two zones, only Files/LandingZone is read",
        "remove the older one, ROOT/LandingZone, once nobody writes to it",
    ),
    entry(
        "ME002",
        W,
        ("LZ-1.9",),
        "data file outside a table folder, ignored",
        "move it into the table folder it belongs to",
    ),
    entry("ME003", W, ("LZ-1.9",), "sub-folder ignored", "put the change files directly into the table folder"),
    entry("ME004", E, ("LZ-1.5",), "leads to {table}, owned by {folder}", "rename one of the two folders"),
    entry("ME005", W, ("LZ-1.6",), "looks like a table, `_` names are skipped", "drop the underscore if it is a table"),
    entry(
        "ME006",
        I,
        ("LZ-1.8",),
        "partner events unreadable or misplaced",
        "put one valid _partnerEvents.json at the top of the landing zone",
    ),
    entry(
        "ME007",
        W,
        ("LZ-7.10",),
        "{count:table}, the service takes 1,000",
        "split the tables over several mirrored databases",
        strict=E,
    ),
    entry(
        "ME008",
        W,
        ("LZ-2.3",),
        "no `_metadata.json`, {count:file} waiting",
        "land a _metadata.json in the folder; it may come after the files",
    ),
    entry("ME009", E, ("LZ-2.5",), "`_metadata.json` vanished", "put the _metadata.json back"),
    entry(
        "ME010",
        E,
        ("LZ-2.6",),
        "invalid JSON at line {line}, column {char}: {fault}",
        "{mending}: the file must be JSON that any parser reads",
    ),
    entry("ME011", E, ("LZ-2.6",), "{property} is {found}, expected {known}", "write one of the expected values"),
    entry("ME012", W, ("LZ-2.8",), "unknown property {property}, ignored", "check how the property is spelled"),
    entry(
        "ME013", I, ("LZ-2.8",), "boolean {property} is written as text", "write true or false without quotation marks"
    ),
    entry("ME014", W, ("LZ-2.7",), "ConditionalUpdateColumn has no effect", "remove the property", strict=E),
    entry(
        "ME015",
        W,
        ("LZ-2.7",),
        "SchemaDefinition ignored in Parquet",
        "remove it, or set FileFormat if the files are text",
    ),
    entry(
        "ME016",
        I,
        ("LZ-2.7",),
        "insert-only, no updates or deletes",
        "declare keyColumns if rows are ever to be updated or deleted",
    ),
    entry(
        "ME017",
        E,
        ("LZ-2.10",),
        "keyColumns changed from {before} to {after}",
        "restore the former keyColumns, or delete the folder and land the table anew",
    ),
    entry(
        "ME018",
        E,
        ("LZ-2.11",),
        "key column {column} is not in the file",
        "land a file that has {column}, or correct keyColumns",
    ),
    entry(
        "ME019",
        W,
        ("LZ-3.3",),
        "waits for {name}, {count:later file} unread",
        "land the missing file, or rename the later ones to close the gap",
    ),
    entry(
        "ME020",
        W,
        ("LZ-3.2",),
        "{digits:digit}, not 20: ignored",
        "rename it to 20 digits, in the order in which the files are to be read",
    ),
    entry(
        "ME021",
        I,
        ("LZ-3.2", "LZ-3.9"),
        "extension {found}, expected {expected}: ignored",
        "rename it once it is final; a temporary name is fine",
    ),
    entry("ME022", W, ("LZ-3.4",), "behind watermark {watermark}, never read", "land it under the next free number"),
    entry(
        "ME023",
        E,
        ("LZ-3.10", "LZ-6.10"),
        "0 bytes",
        "delete it and land it again; write under another name first, then rename",
    ),
    entry(
        "ME024",
        E,
        ("LZ-3.10",),
        "incomplete, or changed while read: {reason}",
        "delete it and land it again; write under another name first, then rename",
    ),
    entry(
        "ME025",
        W,
        ("LZ-3.13",),
        "overwritten unread, a batch is lost",
        "let one writer number the files, and rename with `If-None-Match: *`",
        strict=E,
    ),
    entry(
        "ME026",
        W,
        ("LZ-3.13",),
        "overwritten after it was applied, not read",
        "land the new content as a new file",
        strict=E,
    ),
    entry("ME027", I, ("LZ-3.11",), "completed in place, still refused", "delete the file, then land it again"),
    entry(
        "ME028",
        W,
        ("LZ-3.5",),
        "{count:file} of one time, order undefined",
        "land files at different times, or number them",
    ),
    entry(
        "ME029",
        W,
        ("LZ-3.6",),
        "older than files already applied",
        "number the files, so that their order does not depend on time",
    ),
    entry(
        "ME030",
        W,
        ("LZ-3.8",),
        "partition folder without isPartitionEnabled",
        "set isPartitionEnabled if the table is partitioned",
    ),
    entry(
        "ME031", W, ("LZ-3.8",), "outside the partitions {column}, ignored", "put it into `k=v` folders like all others"
    ),
    entry(
        "ME032",
        E,
        ("LZ-3.8",),
        "column {column} contradicts its folder",
        "leave the column out of the file: the folder says its value",
    ),
    entry(
        "ME033",
        W,
        ("LZ-3.8",),
        "key spans partitions, order undefined: the key lacks {column}",
        "add {column} to the key",
    ),
)
