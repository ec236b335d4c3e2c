"""Error codes of OneLake's storage API, each with its HTTP status and its name in either dialect."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Receive, Scope


class StorageErrorCode(Enum):
    """HTTP status, DFS error code, message, and the Blob error code where it differs."""

    PATH_NOT_FOUND = (404, "PathNotFound", "The specified path does not exist.", "BlobNotFound")
    WORKSPACE_NOT_FOUND = (404, "WorkspaceNotFound", "The specified workspace does not exist.", "ContainerNotFound")
    ARTIFACT_NOT_FOUND = (404, "ArtifactNotFound", "The specified item does not exist.")
    SOURCE_PATH_NOT_FOUND = (404, "SourcePathNotFound", "The source path does not exist.", "BlobNotFound")
    RENAME_DESTINATION_PARENT_PATH_NOT_FOUND = (
        404,
        "RenameDestinationParentPathNotFound",
        "The parent directory of the destination path does not exist.",
    )
    PATH_ALREADY_EXISTS = (409, "PathAlreadyExists", "The specified path already exists.", "BlobAlreadyExists")
    PATH_CONFLICT = (
        409,
        "PathConflict",
        "The path is a file where a folder is needed, or a folder where a file is needed.",
        "ResourceTypeMismatch",
    )
    DIRECTORY_NOT_EMPTY = (409, "DirectoryNotEmpty", "The folder is not empty.", "DirectoryIsNotEmpty")
    INVALID_RENAME_SOURCE_PATH = (
        409,
        "InvalidRenameSourcePath",
        "A folder cannot be renamed to itself or to a path inside itself.",
    )
    FOLDER_IN_USE = (409, "PathIsInUse", "The folder is in use; try again later.", "BlobIsInUse")
    NOT_MODIFIED = (304, "ConditionNotMet", "Not modified.")
    CONDITION_NOT_MET = (412, "ConditionNotMet", "A condition of the request is not fulfilled.")
    SOURCE_CONDITION_NOT_MET = (412, "SourceConditionNotMet", "A condition on the source is not fulfilled.")
    INVALID_FLUSH_POSITION = (
        400,
        "InvalidFlushPosition",
        "Committed length and appended data do not reach the flush position without a gap.",
    )
    INVALID_BLOCK_LIST = (400, "InvalidBlockList", "The list names a block that was not put.")
    INVALID_URI = (400, "InvalidUri", "The path is not valid.")
    INVALID_SOURCE_URI = (400, "InvalidSourceUri", "The source cannot be used here.")
    INVALID_HEADER_VALUE = (400, "InvalidHeaderValue", "A header's value is not valid.")
    MISSING_REQUIRED_HEADER = (400, "MissingRequiredHeader", "A required header is missing.")
    INVALID_QUERY_PARAMETER_VALUE = (400, "InvalidQueryParameterValue", "A query parameter's value is not valid.")
    UNSUPPORTED_QUERY_PARAMETER = (400, "UnsupportedQueryParameter", "A query parameter is not supported.")
    CONTENT_LENGTH_MUST_BE_ZERO = (400, "ContentLengthMustBeZero", "The Content-Length must be zero.")
    INVALID_XML_DOCUMENT = (400, "InvalidXmlDocument", "The XML of the request is not valid.")
    BAD_REQUEST = (400, "BadRequest", "The request is not understood.")
    UNAUTHORIZED = (401, "Unauthorized", "The request carries no token that is accepted here.")
    MANAGED_FOLDER = (
        403,
        "ManagedFolderOperationNotAllowed",
        "This folder is managed by Fabric: it cannot be created, renamed or deleted here.",
    )
    UNSUPPORTED_HTTP_VERB = (405, "UnsupportedHttpVerb", "The method is not supported here.")
    REQUEST_BODY_TOO_LARGE = (413, "RequestBodyTooLarge", "The request body is too large.")
    INVALID_RANGE = (416, "InvalidRange", "The range is outside the file.")
    THROTTLED = (429, "TooManyRequests", "Too many requests; try again later.")
    SERVER_BUSY = (503, "ServerBusy", "The server is busy; try again later.")

    def __init__(self, status: int, dfs_code: str, message: str, blob_code: str = "") -> None:
        self.status = status
        self.dfs_code = dfs_code
        self.message = message
        self.blob_code = blob_code or dfs_code


class StorageApiError(Exception):
    """An error answer of the storage API.

    Args:
        code: which error.
        message: replaces the code's message; never holds row values, keys or tokens.
        headers: sent with the answer (`Retry-After`).
    """

    def __init__(self, code: StorageErrorCode, message: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message or code.message)
        self.code = code
        self.message = message or code.message
        self.headers = dict(headers or {})


RESET_EXTENSION = "mirror_engine.reset"  # of the ASGI scope: its `now` aborts the connection


class ConnectionReset(Exception):
    """The request gets no answer; its connection ends."""


async def reset_connection(scope: Scope, receive: Receive) -> None:
    """Abort a request's connection, and wait for the disconnect."""
    scope["extensions"][RESET_EXTENSION]["now"]()
    while (await receive())["type"] != "http.disconnect":
        pass
