"""Error codes of OneLake's storage API, its table APIs and Fabric's REST API, each with its status; their answers."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from starlette.responses import JSONResponse

if TYPE_CHECKING:
    from collections.abc import Mapping


class StorageErrorCode(Enum):
    """Error codes, named as in DFS: HTTP status, message, and the Blob error code where it differs."""

    PathNotFound = (404, "The specified path does not exist.", "BlobNotFound")
    WorkspaceNotFound = (404, "The specified workspace does not exist.", "ContainerNotFound")
    ArtifactNotFound = (404, "The specified item does not exist.")
    SourcePathNotFound = (404, "The source path does not exist.", "BlobNotFound")
    RenameDestinationParentPathNotFound = (404, "The parent directory of the destination path does not exist.")
    PathAlreadyExists = (409, "The specified path already exists.", "BlobAlreadyExists")
    PathConflict = (409, "There is a file instead of a folder, or a folder instead of a file.", "ResourceTypeMismatch")
    DirectoryNotEmpty = (409, "The folder is not empty.", "DirectoryIsNotEmpty")
    InvalidRenameSourcePath = (409, "A folder cannot be renamed to itself or to a path inside itself.")
    PathIsInUse = (409, "The folder is in use; try again later.", "BlobIsInUse")
    NotModified = (304, "Not modified.", "ConditionNotMet", "ConditionNotMet")
    ConditionNotMet = (412, "A condition of the request is not fulfilled.")
    SourceConditionNotMet = (412, "A condition on the source is not fulfilled.")
    InvalidFlushPosition = (400, "Committed length and appended data do not reach the flush position without a gap.")
    InvalidBlobOrBlock = (400, "All block ids of a file have the same length: pad numbers with zeros.")
    InvalidBlockList = (400, "The list names a block that was not put.")
    OperationNotAllowedOnThePath = (400, "Fabric manages this folder: it cannot be created, renamed or deleted.")
    FriendlyNameSupportDisabled = (400, "An item is named by GUID, or as NAME.MountedRelationalDatabase.")
    ArtifactIdMissing = (400, "Either WorkspaceId or ArtifactId are missing in the request", "BadRequest", "BadRequest")
    InvalidUri = (400, "The path is not valid.")
    InvalidSourceUri = (400, "The source cannot be used here.")
    InvalidHeaderValue = (400, "A header's value is not valid.")
    MissingRequiredHeader = (400, "A required header is missing.")
    InvalidQueryParameterValue = (400, "A query parameter's value is not valid.")
    MissingRequiredQueryParameter = (400, "A required query parameter is missing.")
    OutOfRangeQueryParameterValue = (400, "A query parameter's value is too small or too large.")
    UnsupportedQueryParameter = (400, "A query parameter is not supported.")
    ContentLengthMustBeZero = (400, "The Content-Length must be zero.")
    InvalidMd5 = (400, "Content-MD5 is not the Base64 of 16 bytes.")
    Md5Mismatch = (400, "The MD5 of the body differs from Content-MD5.")
    InvalidXmlDocument = (400, "The XML of the request is not valid.")
    BadRequest = (400, "The request is not understood.")
    Unauthorized = (401, "The request carries no token that is accepted here.")
    AuthenticationFailed = (403, "OneLake gives no properties of a path that ends with a slash: leave the slash out.")
    UnsupportedHttpVerb = (405, "The method is not supported here.")
    RequestBodyTooLarge = (413, "The request body is too large.")
    InvalidRange = (416, "The range is outside the file.")
    TooManyRequests = (429, "Too many requests; try again later.")
    ServerBusy = (503, "The server is busy; try again later.")

    def __init__(self, status: int, message: str, blob_code: str = "", dfs_code: str = "") -> None:
        self.status = status
        self.message = message
        self.dfs_code = dfs_code or self.name
        self.blob_code = blob_code or self.dfs_code


class FabricErrorCode(Enum):
    """Error codes of Fabric's REST API: HTTP status, message, whether a retry may succeed."""

    WorkspaceNotFound = (404, "The workspace could not be found.")
    ItemNotFound = (404, "The item could not be found.")
    OperationNotFound = (404, "There is no such long-running operation.")
    OperationHasNoResult = (400, "The operation has no result, or none yet.")
    EndpointNotFound = (404, "There is no such operation.")
    MethodNotAllowed = (405, "The operation does not support this method.")
    ItemDisplayNameAlreadyInUse = (409, "The display name is in use in this workspace.")
    InvalidRequest = (400, "The request is not valid.")
    InvalidItemType = (400, "The item's type is not MirroredDatabase.")
    CorruptedPayload = (400, "The definition is corrupted.")
    MirroringDefinitionMissing = (400, "The item has no definition.")
    MirroredDatabaseNotReady = (400, "The mirrored database is still being initialized.", True)
    OperationNotAllowed = (
        400,
        "The default schema and the source's connection change only while mirroring is Initialized or Stopped.",
    )
    TokenExpired = (401, "The access token has expired; send a new one.")
    RequestBodyTooLarge = (413, "The request's body is too large.")
    TooManyRequests = (429, "Too many requests.", True)
    ServiceUnavailable = (503, "The service is busy; try again later.", True)

    def __init__(self, status: int, message: str, is_retriable: bool = False) -> None:  # noqa: FBT001, FBT002 - a row
        self.status = status
        self.message = message
        self.is_retriable = is_retriable


class TableErrorCode(Enum):
    """Error codes of the table APIs: HTTP status, Iceberg's type of the error, message.

    Types are those of Iceberg's REST catalog specification. Unity Catalog has one code a status (`_UNITY_CODES`).
    """

    WorkspaceNotFound = (404, "NoSuchWarehouseException", "The workspace could not be found.")
    ItemNotFound = (404, "NoSuchWarehouseException", "The item could not be found.")
    SchemaNotFound = (404, "NoSuchNamespaceException", "The schema could not be found.")
    TableNotFound = (404, "NoSuchTableException", "The table could not be found.")
    ColumnNotFound = (404, "NoSuchTableException", "A column could not be found.")
    StreamNotFound = (404, "NoSuchTableException", "The stream could not be found, or its read session has expired.")
    EndpointNotFound = (404, "NotFoundException", "There is no such operation.")
    BadRequest = (400, "BadRequestException", "The request is not valid.")
    TokenExpired = (401, "NotAuthorizedException", "The access token has expired; send a new one.")
    MethodNotAllowed = (405, "UnsupportedOperationException", "The table APIs are read only.")
    NoIcebergMetadata = (
        406,
        "UnsupportedOperationException",
        "The emulator makes no Iceberg metadata of Delta tables. Read the table as Delta, or by the table read API.",
    )
    RequestBodyTooLarge = (413, "BadRequestException", "The request's body is too large.")
    TooManyRequests = (429, "SlowDownException", "Too many requests; try again later.")
    InternalError = (500, "InternalServerError", "The table cannot be read.")
    ServiceUnavailable = (503, "SlowDownException", "The service is busy; try again later.")

    def __init__(self, status: int, iceberg: str, message: str) -> None:
        self.status = status
        self.iceberg = iceberg
        self.message = message


_UNITY_CODES = {  # of the open-source server, by status
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}


def table_error(path: str, status: int, code: str, message: str, headers: Mapping[str, str]) -> JSONResponse:
    """An error in the form of the table API that a path is of."""
    if path.startswith("/iceberg/"):
        known = TableErrorCode.__members__.get(code)
        kind = known.iceberg if known else f"{code}Exception"
        content: Any = {"error": {"message": message, "type": kind, "code": status}}
    elif path.startswith("/delta/"):
        content = {"error_code": _UNITY_CODES.get(status, "INTERNAL"), "message": message}
    else:
        content = {"error": {"code": code, "message": message}}
    return JSONResponse(content, status, dict(headers))


def fabric_error(
    status: int, code: str, message: str, headers: Mapping[str, str], *, is_retriable: bool = False
) -> JSONResponse:
    """An error as Fabric's REST API answers it, with a request's id of its own."""
    request_id = str(uuid4())
    content = {"requestId": request_id, "errorCode": code, "message": message, "isRetriable": is_retriable}
    return JSONResponse(content, status, {"x-ms-public-api-error-code": code, "requestId": request_id, **headers})


class _ApiError(Exception):
    """An error answer; its message, by default the code's, never holds row values, keys, tokens or a body's content."""

    def __init__(self, code: Any, message: str = "", headers: Mapping[str, str] | None = None) -> None:  # noqa: ANN401 - a subclass says
        super().__init__(message or code.message)
        self.code = code
        self.headers = dict(headers or {})


class StorageApiError(_ApiError):
    """Of the storage API."""

    code: StorageErrorCode


class FabricApiError(_ApiError):
    """Of Fabric's REST API."""

    code: FabricErrorCode

    def response(self) -> JSONResponse:
        code = self.code
        return fabric_error(code.status, code.name, str(self), self.headers, is_retriable=code.is_retriable)


class TableApiError(_ApiError):
    """Of the table APIs."""

    code: TableErrorCode

    def response(self, path: str) -> JSONResponse:
        return table_error(path, self.code.status, self.code.name, str(self), self.headers)


ALLOWED_BY = "x-mirror-engine-allowed-by"  # of an answer that refuses: the option with which it would not
BARE_NAMES = {ALLOWED_BY: "--allow-bare-names"}
MANAGED_FOLDERS = {ALLOWED_BY: "--allow-managed-folder-changes"}


class ConnectionReset(Exception):
    """The request gets no answer; its connection ends."""
