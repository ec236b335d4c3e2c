"""A refusal in Fabric's own words: error code and message as the service shows them (protocol chapter 10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.names import METADATA_FILE

if TYPE_CHECKING:
    from mirror_engine.landing_zone.diagnostics import Diagnostic
    from mirror_engine.landing_zone.names import TableName

WORDED = frozenset({"ME009", "ME010", "ME023", "ME024", "ME044", "ME060", "ME068"})  # refusals whose words were seen
INVALID_INPUT = "InputValidationError"
SCHEMA_MERGE = "SchemaMergeFailure"
INTERNAL = "InternalError"
TOO_MANY_TABLES = "The tables count might exceed the limit, there could be some tables missing."  # E8

_INTEGER_NAMES = {"byte": "SByte", "short": "Int16", "integer": "Int32", "long": "Int64"}
_EMPTY_TEXT = (
    "Exception reading the data file. Exception: No data rows available. IReader state: ColumnCount: 0 CurrentIndex: -1"
)
_UNREADABLE_ROWS = (
    "Exception reading the data file. Exception: ReadDataRowsAsync: Failed to read data rows. Exception: "
)


def fabric_message(
    diagnostic: Diagnostic, table: TableName, artifact: str, *, default_schema: str = "dbo"
) -> tuple[str, str]:
    """The error code and message of a refusal, shapes E1 to E7 and E10.

    Args:
        diagnostic: the error; its path is from the landing zone's top.
        table: the table that refused.
        artifact: the mirrored database's GUID.
        default_schema: the Delta schema of tables outside a schema folder, `""` for none.
    """
    match diagnostic.code:
        case "ME044":
            return SCHEMA_MERGE, _schema_mismatch(diagnostic, table, artifact, default_schema)
        case "ME068":
            return INTERNAL, stuck(dict(diagnostic.details).get("time", ""))
        case "ME023" | "ME024" if diagnostic.path.lower().endswith(".parquet"):
            return INVALID_INPUT, _unopened(diagnostic, artifact)
        case _:
            return INVALID_INPUT, _framed(_kind(diagnostic), _detail(diagnostic, table), artifact)


def stuck(time: str) -> str:
    """E7."""
    return f"This table has been stuck in Snapshotting for {time}"


def _detail(diagnostic: Diagnostic, table: TableName) -> str:
    match diagnostic.code:
        case "ME009":  # E3
            return f"{_metadata_fault()}PathNotFound {ZONE}/{table.folder}/{METADATA_FILE}"
        case "ME010":  # E4
            found = dict(diagnostic.details)
            return f"{_metadata_fault()}{found['fault']}, line {found['line']}, column {found['char']}"
        case "ME023":  # E2
            return f"{_EMPTY_TEXT} ({diagnostic.message})"
        case "ME060":  # E6
            return f"{_UNREADABLE_ROWS}{_conversion(diagnostic)} ({diagnostic.message})"
        case _:  # E10
            return diagnostic.message


def _framed(kind: str, detail: str, artifact: str) -> str:
    return (
        f"We encountered an error while parsing {kind} file being used, please fix the file and try again. "
        f"The error is: {detail}, ErrorCode: {INTERNAL}, ErrorCode: {INVALID_INPUT} ArtifactId: {artifact}"
    )


def _unopened(diagnostic: Diagnostic, artifact: str) -> str:
    """E1."""
    fault = "Parquet file size is 0 bytes" if diagnostic.code == "ME023" else diagnostic.text
    return (
        f"We encountered an error while opening the Parquet file '{ZONE}/{diagnostic.path}', please fix the file and "
        f"try again. The error is: 'Invalid: {fault}', ErrorCode: {INTERNAL}, ErrorCode: {INVALID_INPUT} "
        f"ArtifactId: {artifact}"
    )


def _schema_mismatch(diagnostic: Diagnostic, table: TableName, artifact: str, default_schema: str) -> str:
    """E5; the diagnostic's text is the cause."""
    schema = table.schema or default_schema
    name = f"{schema}\\{table.table}" if schema else table.table
    return (
        f"ErrorCode: {SCHEMA_MERGE}, Message: Failed to write table '{name}' due to schema mismatch. "
        f"{diagnostic.text} ArtifactId: {artifact}"
    )


def _conversion(diagnostic: Diagnostic) -> str:
    """What .NET says of a cell that is not of its column's type."""
    found = dict(diagnostic.details)
    wanted = found.get("type", "")
    if wanted in {"date", "timestamp"}:
        return "String was not recognized as a valid DateTime."
    if found.get("fault") == "out of range" and wanted in _INTEGER_NAMES:
        return f"System.OverflowException: Value was either too large or too small for an {_INTEGER_NAMES[wanted]}."
    return "System.FormatException: Input string was not in a correct format."


def _kind(diagnostic: Diagnostic) -> str:
    return "metadata" if diagnostic.path.endswith(METADATA_FILE) or diagnostic.code == "ME009" else "data"


def _metadata_fault() -> str:
    return f"Exception reading the metadata file: {METADATA_FILE}, Exception: "
