"""The refusals that OneLake knows, each with its status and its name in either dialect."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from starlette.types import Receive, Scope


class StorageErrorCode(Enum):
    """A refusal: HTTP status, DFS error code, Blob error code, words."""

    PATH_NOT_FOUND = (404, "PathNotFound", "BlobNotFound", "The specified path does not exist.")
    WORKSPACE_NOT_FOUND = (404, "WorkspaceNotFound", "ContainerNotFound", "The specified workspace does not exist.")
    ARTIFACT_NOT_FOUND = (404, "ArtifactNotFound", "ArtifactNotFound", "The specified item does not exist.")
    SOURCE_PATH_NOT_FOUND = (404, "SourcePathNotFound", "BlobNotFound", "The source path does not exist.")
    RENAME_DESTINATION_PARENT_PATH_NOT_FOUND = (
        404,
        "RenameDestinationParentPathNotFound",
        "RenameDestinationParentPathNotFound",
        "The parent directory of the destination path does not exist.",
    )
    PATH_ALREADY_EXISTS = (409, "PathAlreadyExists", "BlobAlreadyExists", "The specified path already exists.")
    PATH_CONFLICT = (
        409,
        "PathConflict",
        "ResourceTypeMismatch",
        "A file stands where a folder is meant, or the other way round.",
    )
    DIRECTORY_NOT_EMPTY = (409, "DirectoryNotEmpty", "DirectoryIsNotEmpty", "The folder is not empty.")
    INVALID_RENAME_SOURCE_PATH = (
        409,
        "InvalidRenameSourcePath",
        "InvalidRenameSourcePath",
        "A folder cannot be renamed to itself, nor to a place inside itself.",
    )
    FOLDER_IN_USE = (409, "PathIsInUse", "BlobIsInUse", "The folder is in use; try again later.")
    NOT_MODIFIED = (304, "ConditionNotMet", "ConditionNotMet", "Not modified.")
    CONDITION_NOT_MET = (412, "ConditionNotMet", "ConditionNotMet", "A condition of the request is not met.")
    SOURCE_CONDITION_NOT_MET = (
        412,
        "SourceConditionNotMet",
        "SourceConditionNotMet",
        "A condition on the source of the request is not met.",
    )
    INVALID_FLUSH_POSITION = (
        400,
        "InvalidFlushPosition",
        "InvalidFlushPosition",
        "What was written and appended does not reach the position of the flush without a gap.",
    )
    INVALID_BLOCK_LIST = (400, "InvalidBlockList", "InvalidBlockList", "The list names a block that was not put.")
    INVALID_URI = (400, "InvalidUri", "InvalidUri", "The path is none that can be served.")
    INVALID_SOURCE_URI = (400, "InvalidSourceUri", "InvalidSourceUri", "The source is none that can be used here.")
    INVALID_HEADER_VALUE = (400, "InvalidHeaderValue", "InvalidHeaderValue", "A header's value is not valid.")
    MISSING_REQUIRED_HEADER = (400, "MissingRequiredHeader", "MissingRequiredHeader", "A required header is missing.")
    INVALID_QUERY_PARAMETER_VALUE = (
        400,
        "InvalidQueryParameterValue",
        "InvalidQueryParameterValue",
        "A query parameter's value is not valid.",
    )
    UNSUPPORTED_QUERY_PARAMETER = (
        400,
        "UnsupportedQueryParameter",
        "UnsupportedQueryParameter",
        "A query parameter is not supported.",
    )
    CONTENT_LENGTH_MUST_BE_ZERO = (
        400,
        "ContentLengthMustBeZero",
        "ContentLengthMustBeZero",
        "The Content-Length of this request must be zero.",
    )
    INVALID_XML_DOCUMENT = (400, "InvalidXmlDocument", "InvalidXmlDocument", "The XML of the request is not valid.")
    BAD_REQUEST = (400, "BadRequest", "BadRequest", "The request is not understood.")
    UNAUTHORIZED = (401, "Unauthorized", "Unauthorized", "The request carries no token that is accepted here.")
    MANAGED_FOLDER = (
        403,
        "ManagedFolderOperationNotAllowed",
        "ManagedFolderOperationNotAllowed",
        "This folder is managed by Fabric: it cannot be created, renamed or deleted here.",
    )
    UNSUPPORTED_HTTP_VERB = (405, "UnsupportedHttpVerb", "UnsupportedHttpVerb", "The method is not supported here.")
    REQUEST_BODY_TOO_LARGE = (413, "RequestBodyTooLarge", "RequestBodyTooLarge", "The request's body is too large.")
    INVALID_RANGE = (416, "InvalidRange", "InvalidRange", "The range lies outside the file.")
    THROTTLED = (429, "TooManyRequests", "TooManyRequests", "Too many requests; try again later.")
    SERVER_BUSY = (503, "ServerBusy", "ServerBusy", "The server is busy; try again later.")

    def __init__(self, status: int, dfs_code: str, blob_code: str, words: str) -> None:
        self.status = status
        self.dfs_code = dfs_code
        self.blob_code = blob_code
        self.words = words


class StorageApiError(Exception):
    """A refusal on its way to the client.

    Args:
        fault: which one.
        message: more than the fault's own words; never a row's value, a key or a token.
        headers: to be sent along (`Retry-After`).
    """

    def __init__(self, fault: StorageErrorCode, message: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message or fault.words)
        self.fault = fault
        self.message = message or fault.words
        self.headers = dict(headers or {})


EXTENSION = "mirror_engine.cut"  # of the ASGI scope: its `now` ends the connection at once


class ConnectionReset(Exception):
    """The request is not to be answered."""


async def cut(scope: Scope, receive: Receive) -> None:
    """End a request's connection, and wait until that is known."""
    scope["extensions"][EXTENSION]["now"]()
    while (await receive())["type"] != "http.disconnect":
        pass
