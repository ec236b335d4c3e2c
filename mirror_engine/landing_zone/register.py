"""The numbered register of everything `validate`, `status` and the engine can say (protocol chapter 11)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(str, Enum):
    """How grave a diagnostic is; the values are what people and programs read."""

    ERROR = "error"  # the table latches; a new folder stays unarmed
    WARNING = "warning"
    INFO = "info"


GRAVITY = (Severity.INFO, Severity.WARNING, Severity.ERROR)  # the gravest last


@dataclass(frozen=True)
class RegisterLine:
    """One line of the register.

    Attributes:
        code: `MEnnn`, never reused.
        severity: by default.
        strict: the severity under `strict`.
        rules: the protocol's rules behind it.
        text: what was found, with the names of its details in braces.
        remedy: what to do, likewise; empty where nothing is to be done.
    """

    code: str
    severity: Severity
    strict: Severity
    rules: tuple[str, ...]
    text: str
    remedy: str


E, W, I = Severity.ERROR, Severity.WARNING, Severity.INFO  # noqa: E741 - the register's own letters


def _entry(
    code: str,
    severity: Severity,
    rules: tuple[str, ...],
    text: str,
    remedy: str,
    *,
    strict: Severity | None = None,
) -> RegisterLine:
    return RegisterLine(code, severity, strict or severity, rules, text, remedy)


_ENTRIES = (
    _entry("ME001", W, ("LZ-1.1",), "two zones, only Files/LandingZone is read", "remove the older"),
    _entry("ME002", W, ("LZ-1.9",), "data file outside a table folder, ignored", "move it"),
    _entry("ME003", W, ("LZ-1.9",), "sub-folder ignored", "put files into the table folder"),
    _entry("ME004", E, ("LZ-1.5",), "leads to {table}, owned by {folder}", "rename one folder"),
    _entry("ME005", W, ("LZ-1.6",), "looks like a table, `_` names are skipped", "drop the underscore"),
    _entry("ME006", I, ("LZ-1.8",), "partner events unreadable or misplaced", "one valid file on top"),
    _entry("ME007", W, ("LZ-7.10",), "{count} tables, the service takes 1,000", "split the database", strict=E),
    _entry("ME008", W, ("LZ-2.3",), "no `_metadata.json`, {count} files wait", "land it, last is fine"),
    _entry("ME009", E, ("LZ-2.5",), "`_metadata.json` vanished", "restore it"),
    _entry(
        "ME010",
        E,
        ("LZ-2.6",),
        "invalid JSON at line {line}, column {char}: {fault}",
        "quote the word, escape the backslash, drop the comma",
    ),
    _entry("ME011", E, ("LZ-2.6",), "{property} is {found}, expected {known}", "correct it"),
    _entry("ME012", W, ("LZ-2.8",), "unknown property {property}, ignored", "check the spelling"),
    _entry("ME013", I, ("LZ-2.8",), "boolean {property} is written as text", "write true or false"),
    _entry("ME014", W, ("LZ-2.7",), "ConditionalUpdateColumn has no effect", "remove it", strict=E),
    _entry("ME015", W, ("LZ-2.7",), "SchemaDefinition ignored in Parquet", "remove it, or set FileFormat"),
    _entry("ME016", I, ("LZ-2.7",), "insert-only, no updates or deletes", "declare keyColumns"),
    _entry(
        "ME017",
        E,
        ("LZ-2.10",),
        "keyColumns changed from {before} to {after}",
        "restore, or recreate the folder",
    ),
    _entry("ME018", E, ("LZ-2.11",), "key column {column} is not in the file", "land a file that has it"),
    _entry(
        "ME019",
        W,
        ("LZ-3.3",),
        "waits for {name}, {count} later files unread",
        "land it, or rename to close the gap",
    ),
    _entry("ME020", W, ("LZ-3.2",), "{digits} digits, not 20: ignored", "rename in order"),
    _entry("ME021", I, ("LZ-3.2", "LZ-3.9"), "extension {found}, expected {expected}: ignored", "rename if final"),
    _entry("ME022", W, ("LZ-3.4",), "behind watermark {watermark}, never read", "take the next number"),
    _entry("ME023", E, ("LZ-3.10", "LZ-6.10"), "0 bytes", "delete, land again; publish by rename"),
    _entry(
        "ME024",
        E,
        ("LZ-3.10",),
        "incomplete, or changed while read: {reason}",
        "delete, land again; publish by rename",
    ),
    _entry(
        "ME025",
        W,
        ("LZ-3.13",),
        "overwritten unread, a batch is lost",
        "one writer; rename with `If-None-Match: *`",
        strict=E,
    ),
    _entry("ME026", W, ("LZ-3.13",), "overwritten after it was applied, not read", "land a new file", strict=E),
    _entry("ME027", I, ("LZ-3.11",), "completed in place, still refused", "delete, land again"),
    _entry("ME028", W, ("LZ-3.5",), "{count} files of one time, order undefined", "space them, or number them"),
    _entry("ME029", W, ("LZ-3.6",), "older than files already applied", "number the files"),
    _entry("ME030", W, ("LZ-3.8",), "partition folder without isPartitionEnabled", "set the flag"),
    _entry("ME031", W, ("LZ-3.8",), "outside the partitions {column}, ignored", "use `k=v` folders alike"),
    _entry("ME032", E, ("LZ-3.8",), "column {column} contradicts its folder", "drop the column"),
    _entry(
        "ME033",
        W,
        ("LZ-3.8",),
        "key spans partitions, order undefined: the key lacks {column}",
        "add {column} to the key",
    ),
    _entry("ME034", W, ("LZ-4.10",), "`__rowMarker__` is column {position} of {count}", "write it last", strict=E),
    _entry("ME035", W, ("LZ-4.11",), "marker is text in Parquet", "write int32", strict=E),
    _entry("ME036", E, ("LZ-4.10", "LZ-4.11"), "marker of type {found}, or two of them", "one int32 column"),
    _entry(
        "ME037",
        E,
        ("LZ-4.12",),
        "row marker is {value}, the protocol knows 0, 1, 2, 4",
        "delete, land a corrected file",
    ),
    _entry("ME038", E, ("LZ-4.14",), "marker {value} needs keyColumns", "declare keys"),
    _entry(
        "ME039",
        W,
        ("LZ-4.1", "LZ-4.3"),
        "{count} inserts met a present key, both rows stay",
        "use 4, or delete first",
    ),
    _entry(
        "ME040",
        W,
        ("LZ-4.8",),
        "{count} rows with NULL in key {column} match nothing",
        "fill the key",
        strict=E,
    ),
    _entry("ME041", W, ("LZ-4.5",), "updates lack {columns}, written as NULL", "send full rows"),
    _entry("ME042", I, ("LZ-4.13",), "no marker after marker files: {count} inserts", "add markers"),
    _entry("ME043", W, ("LZ-4.4",), "{count} changes met several copies of a key", "remove duplicates"),
    _entry("ME044", E, ("LZ-5.2",), "{reason}", "replace the file, or recreate"),
    _entry(
        "ME045",
        W,
        ("LZ-5.8", "LZ-5.9"),
        "all-NULL column {column} reads as integer",
        "write its type",
        strict=E,
    ),
    _entry("ME046", E, ("LZ-5.5", "LZ-6.5"), "not-null column {column} is missing, or new", "make it nullable"),
    _entry(
        "ME047",
        W,
        ("LZ-5.6",),
        "{column} is not-null here, nullable in the table",
        "keep it nullable",
        strict=E,
    ),
    _entry("ME048", E, ("LZ-5.6", "LZ-6.8"), "NULL in not-null column {column}", "declare it nullable, recreate"),
    _entry("ME049", E, ("LZ-5.8",), "{column} has unsupported type {found}", "cast, or JSON text"),
    _entry(
        "ME050",
        W,
        ("LZ-4.11", "LZ-5.8"),
        "{column}: {found} taken as {taken_as}",
        "write it as {taken_as}",
        strict=E,
    ),
    _entry("ME051", W, ("LZ-5.10",), "{column} mixes UTC and naive times", "choose one", strict=E),
    _entry(
        "ME052",
        W,
        ("LZ-2.11", "LZ-4.10", "LZ-5.7"),
        "{column} and {other} differ in case, taken as one",
        "one spelling",
        strict=E,
    ),
    _entry("ME053", E, ("LZ-5.7",), "{column} and {other} in one file differ only in case", "rename one"),
    _entry("ME054", I, ("LZ-5.3",), "new: {new}; not sent: {missing}", "if renamed, recreate"),
    _entry("ME055", W, ("LZ-5.1",), "codec {found} is not documented", "Snappy, GZIP, ZSTD", strict=E),
    _entry("ME056", E, ("LZ-6.1", "LZ-6.2"), "{option} is {found}, allowed {known}", "correct it"),
    _entry("ME057", W, ("LZ-6.5",), "header column {column} undeclared, ignored", "declare it, recreate"),
    _entry("ME058", W, ("LZ-6.10",), "header only", ""),
    _entry("ME059", W, ("LZ-6.8",), "{column} not key, not nullable: deletes may fail", "IsNullable: true"),
    _entry("ME060", E, ("LZ-6.9",), "column {column} is not {type}", "delete, land a corrected file"),
    _entry("ME061", E, ("LZ-6.4",), "{reason}", "quote and escape"),
    _entry("ME062", W, ("LZ-6.4",), "line ends are not RowSeparator", "align them"),
    _entry("ME063", E, ("LZ-6.11",), "SchemaDefinition changed at {column}", "restore, or recreate"),
    _entry("ME064", W, ("LZ-4.3",), "same content as {file}, already applied", "do not resend, or send 4"),
    _entry("ME065", I, ("LZ-7.2",), "folder gone, table dropped", ""),
    _entry("ME066", I, ("LZ-7.3",), "new folder, table rebuilt from {count} files", "land the full load"),
    _entry("ME067", W, ("LZ-7.1",), "metadata without data, Failed on {date}", "land a zero-row file"),
    _entry(
        "ME068",
        E,
        ("LZ-7.1",),
        "metadata without data, stuck in Snapshotting for {time}",
        "land a file, or delete the folder",
    ),
    _entry("ME069", W, ("LZ-7.7",), "restart loses {count} rows, files are gone", "recreate single tables"),
    _entry("ME070", W, ("LZ-7.2",), "zone cannot be listed, nothing dropped", "check path and rights"),
    _entry("ME071", W, ("LZ-3.10",), "grew under its final name", "write to `_name`, then rename"),
    _entry("ME072", W, ("LZ-10",), "{operation} failed, next try {time}", ""),
    _entry("ME073", I, ("LZ-8.4",), "newest applied file is gone, next is {next}", "keep the last file"),
    # Beyond the protocol's own register: what a local engine meets and the service does not.
    _entry(
        "ME074",
        W,
        ("LZ-1.9",),
        "symbolic link or special file, not followed",
        "put a regular file or folder there",
    ),
    _entry("ME075", E, ("LZ-10",), "{reason}, more than the limit of {limit}", "split it, or raise {option}"),
    _entry("ME076", I, ("LZ-7.3",), "this ROOT was copied, moved or restored: folder identities learned anew", ""),
    # Only `validate` says these: the service applies such files without a word.
    _entry(
        "ME077",
        W,
        ("LZ-4.1", "LZ-4.7"),
        "updates that met no row, inserted: {count}",
        "insert first; change a key by 2 with the old key, then 0 with the new",
    ),
    _entry("ME078", W, ("LZ-4.1", "LZ-4.7"), "deletes that met no row: {count}", "delete by the key that was inserted"),
    _entry("ME079", W, ("LZ-3.5",), "another order of {count} files of one time makes other rows", "number the files"),
    # What happens to the Delta table itself, which the service lets nobody touch.
    _entry(
        "ME080",
        W,
        ("LZ-4.2",),
        "changed by someone else at version {version}",
        "find out who; recreate the folder and land its full load, or leave it so",
    ),
    _entry("ME081", E, ("LZ-4.18",), "Delta table damaged: {fault}", "{remedy}"),
    # The protocol skips hidden names without a number.
    _entry("ME082", I, ("LZ-1.6", "LZ-1.7"), "name begins with `{first}`: skipped", "rename it if it is to be read"),
)

REGISTER = {entry.code: entry for entry in _ENTRIES}
