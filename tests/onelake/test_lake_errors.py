"""Requests that the lake rejects: each with its code, and without an effect."""

from __future__ import annotations

from functools import partial

import pytest
from lakes import ABSENT_ONLY, changes, refused

from mirror_engine.onelake.errors import StorageErrorCode as Code
from mirror_engine.onelake.requests import SOURCE, Conditions

OTHER_TAG = Conditions.of({"if-match": '"other"'})
ANY_TAG = Conditions.of({"if-match": "*"})
OTHER_SOURCE = Conditions.of({"x-ms-source-if-match": '"other"'}, SOURCE)


@pytest.fixture
def filled(zone):
    """The files T/f and T/g, an empty folder U, another item, a folder outside of Files and Tables."""
    zone.put("T/f", b"abc")
    zone.put("T/g", b"other")
    zone.lake.create_folder(zone.at("U"))
    zone.items.ensure("ws", "other")
    zone.storage.make_folder("ws/db/Other")
    return zone


ATTEMPTS = [
    # create
    (Code.PathAlreadyExists, lambda z: z.lake.create_folder(z.at("U"), ABSENT_ONLY)),
    (Code.PathAlreadyExists, lambda z: z.create("T/f", ABSENT_ONLY)),
    (Code.PathAlreadyExists, lambda z: z.create("T", ABSENT_ONLY)),
    (Code.PathConflict, lambda z: z.create("T")),
    (Code.PathConflict, lambda z: z.create("T/f/below")),
    # append and flush
    (Code.PathNotFound, lambda z: z.append("T/new", 0, b"x")),
    (Code.PathConflict, lambda z: z.append("T", 0, b"x")),
    (Code.PathConflict, lambda z: z.flush("T", 0)),
    (Code.InvalidHeaderValue, lambda z: z.append("T/f", 3, b"")),
    (Code.ConditionNotMet, lambda z: z.flush("T/f", 3, OTHER_TAG)),
    # put, blocks, copy, metadata
    (Code.PathAlreadyExists, lambda z: z.put("T/f", b"x", ABSENT_ONLY)),
    (Code.ConditionNotMet, lambda z: z.put("T/f", b"x", OTHER_TAG)),
    (Code.ConditionNotMet, lambda z: z.put("T/new", b"x", ANY_TAG)),
    (Code.PathConflict, lambda z: z.put("T", b"x")),
    (Code.InvalidHeaderValue, lambda z: z.put_block("T/f", "a", b"")),
    (Code.PathConflict, lambda z: z.put_block("T", "a", b"x")),
    (Code.PathAlreadyExists, lambda z: z.lake.put_block_list(z.at("T/f"), [], ABSENT_ONLY)),
    (Code.PathAlreadyExists, lambda z: z.lake.copy(z.at("T/f"), z.at("T/g"), ABSENT_ONLY)),
    (Code.PathConflict, lambda z: z.lake.copy(z.at("T/f"), z.at("U"))),
    (Code.SourcePathNotFound, lambda z: z.lake.copy(z.at("T/new"), z.at("T/g"))),
    (Code.SourceConditionNotMet, lambda z: z.lake.copy(z.at("T/f"), z.at("T/g"), source_conditions=OTHER_SOURCE)),
    (Code.ConditionNotMet, lambda z: z.lake.set_metadata(z.at("T/f"), OTHER_TAG)),
    (Code.PathNotFound, lambda z: z.lake.set_metadata(z.at("T/new"))),
    # rename
    (Code.SourcePathNotFound, lambda z: z.rename("T/new", "T/h")),
    (Code.PathAlreadyExists, lambda z: z.rename("T/f", "T/g", ABSENT_ONLY)),
    (Code.ConditionNotMet, lambda z: z.rename("T/f", "T/g", OTHER_TAG)),
    (Code.SourceConditionNotMet, lambda z: z.lake.rename(z.at("T/f"), z.at("T/g"), source_conditions=OTHER_SOURCE)),
    (Code.InvalidSourceUri, lambda z: z.lake.rename(z.at("T/f"), z.raw("/ws/other/Files/f"))),
    # delete
    (Code.DirectoryNotEmpty, lambda z: z.lake.delete(z.at("T"))),
    (Code.ConditionNotMet, lambda z: z.lake.delete(z.at("T/f"), OTHER_TAG)),
    (Code.ConditionNotMet, lambda z: z.lake.delete(z.at("T"), OTHER_TAG, recursive=True)),
    (Code.PathNotFound, lambda z: z.lake.delete(z.at("T/new"))),
    (Code.PathNotFound, lambda z: z.lake.delete(z.at("V"), recursive=True)),
    # read and list
    (Code.PathNotFound, lambda z: z.properties("T/new")),
    (Code.PathNotFound, lambda z: z.properties("T/f/below")),
    (Code.PathNotFound, lambda z: z.read("T/new")),
    (Code.ConditionNotMet, lambda z: z.lake.read(z.at("T/f"), OTHER_TAG)),
    (Code.NotModified, lambda z: z.lake.read(z.at("T/f"), Conditions.of({"if-none-match": z.properties("T/f").etag}))),
    (Code.PathNotFound, lambda z: z.lake.list(z.at("T/f/below"))),
    (Code.PathNotFound, lambda z: z.lake.list(z.at("V"), recursive=True)),
    # workspaces and items
    (Code.WorkspaceNotFound, lambda z: z.lake.destination(b"/new/x/Files/f")),
    (Code.ArtifactNotFound, lambda z: z.lake.destination(b"/ws/new/Files/f")),
]


@pytest.mark.parametrize(("code", "attempt"), ATTEMPTS, ids=lambda value: getattr(value, "name", ""))
def test_rejected_requests_change_nothing(filled, code, attempt):
    with refused(code):
        attempt(filled)
    assert (filled.names(), filled.names("T")) == (["T", "U"], ["f", "g"])
    assert (filled.read("T/f"), filled.read("T/g")) == (b"abc", b"other")
    assert [item.name for item in filled.items.all()] == ["db", "other"]


CREATIONS = {"create_folder", "create_file", "put", "put_block_list", "copy"}
REFUSED = Code.OperationNotAllowedOnThePath


@pytest.mark.parametrize(
    ("path", "code", "code_of_creation"),
    [
        ("/ws", Code.ArtifactIdMissing, Code.ArtifactIdMissing),
        *((path, REFUSED, Code.PathAlreadyExists) for path in ("/ws/db/Files", "/ws/db/Tables")),
        *((path, REFUSED, REFUSED) for path in ("/ws/db", "/ws/db/Other", "/ws/db/Other/x", "/ws/other/Tables")),
    ],
)
def test_managed_folders_cannot_be_changed(filled, path, code, code_of_creation):
    filled.storage.delete("ws/other/Tables")
    managed, file, lake = filled.raw(path), filled.at("T/f"), filled.lake
    with lake.receive() as body:
        body.write(b"x")
        create_only = partial(lake.create_folder, managed, ABSENT_ONLY)
        for attempt in (create_only, partial(lake.put_block, managed, "a", body), *changes(lake, managed, file, body)):
            with refused(code_of_creation if attempt.func.__name__ in CREATIONS else code):
                attempt()
    assert filled.read("T/f") == b"abc"
    assert [name for name, _ in lake.list(filled.raw("/ws/db"))] == ["db/Files", "db/Other", "db/Tables"]


def test_managed_folder_changes_can_be_allowed(zone):
    zone.options.allow_managed_folder_changes = True
    zone.lake.create_folder(zone.raw("/ws/db/Other"))
    zone.lake.rename(zone.raw("/ws/db/Other"), zone.raw("/ws/db/More"))
    zone.lake.create_folder(zone.lake.destination(b"/new/x/Files"))
    assert zone.items.ensure("new", "x").path == "new/x"
    assert zone.lake.destination(b"/newer").path == "newer"
    zone.items.allow_bare_names = False
    assert zone.lake.destination(b"/newer/y.MirroredDatabase").path == "newer/y"
    with refused(Code.FriendlyNameSupportDisabled):
        zone.lake.destination(b"/newer/z")
    assert [item.name for item in zone.items.all()] == ["x", "y", "db"]
    zone.items.allow_bare_names = True
    for path in ("/ws/db/More", "/ws/db/Tables", "/ws/db/Files", "/new/x", "/newer"):
        zone.lake.delete(zone.raw(path), recursive=True)
    with refused(Code.WorkspaceNotFound):
        zone.raw("/newer")
    with refused(Code.InvalidUri):
        zone.lake.destination(b"/ws/a%3Ab")
