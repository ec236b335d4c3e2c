"""Request paths: which workspace, item and file they name."""

from __future__ import annotations

import pytest
from zone_client import refused

from mirror_engine.onelake.addresses import address_below, address_of
from mirror_engine.onelake.errors import StorageErrorCode
from mirror_engine.onelake.items import Items
from mirror_engine.onelake.store import LocalStore


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    places = Items(LocalStore(tmp_path_factory.mktemp("store")), allow_bare_names=True)
    places.ensure("my ws", "db")
    places.ensure("my ws", "onelake.db")
    return places


@pytest.mark.parametrize(
    "path",
    [
        b"/my%20ws/db/Files/LandingZone/T",
        b"/onelake/my%20ws/db/Files/LandingZone/T",
        b"//my%20ws//db/Files/LandingZone//T/",
        b"my ws/db/Files/LandingZone/T",
        b"/my%20ws/db.MountedRelationalDatabase/Files/LandingZone/T",
        b"/my%20ws/db.MirroredDatabase/Files/LandingZone/T",
        b"/my%20ws/db%2FFiles%2fLandingZone%2FT",
        b"/onelake%2Fmy%20ws%2Fdb/Files/LandingZone%2FT",
        b"/my%20ws/db/Files%2FLandingZone%2fT%2F",
        b"/my%20ws%2Fdb%2FFiles%2FLandingZone%2FT%2f",
    ],
)
def test_all_spellings_of_a_path_are_one_place(path, places):
    address = address_of(places, path)
    assert address.path == "my ws/db/Files/LandingZone/T"
    assert address.item == places.item(address.workspace, "db")


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (b"a%2Bb", "a+b"),
        (b"a+b", "a+b"),
        (b"p=1%20%24x", "p=1 $x"),
        (b"%C3%A9", "é"),
        (b"%252e%252e", "%2e%2e"),
        (b"a:b%3F|", "a:b?|"),
    ],
)
def test_each_segment_is_decoded_once_and_a_plus_is_a_plus(raw, name, places):
    assert address_of(places, b"/my%20ws/db/Files/" + raw).parts == ("Files", name)


@pytest.mark.parametrize(
    "segment",
    [
        *(b".", b"..", b"%2e%2e", b"%2E.", b"a%5Cb", b"..\\x", b"a%00b", b"%FF", b"a" * 256),
        *(b"%2F", b"%2Fa", b"a%2F%2F", b"a%2F%2Fb", b"..%2f..", b"a%2F%2e%2E%2Fb", b"a%2F.%2Fb", b"a%2Fb%5C"),
    ],
)
@pytest.mark.parametrize(
    "place", [b"/%s", b"/onelake/%s/db", b"/my%%20ws/%s", b"/my%%20ws/db/%s/x", b"/my%%20ws/db/Files/%s"]
)
def test_a_segment_that_is_no_name_is_refused_and_never_dropped(place, segment, places):
    with refused(StorageErrorCode.InvalidUri):
        address_of(places, place % segment)


def test_an_item_is_named_by_its_guid_or_with_its_type(tmp_path):
    places = Items(LocalStore(tmp_path))
    known = places.ensure("ws", "my.db")
    workspace = address_of(places, b"/ws")
    for segment in (known.id, "my.db.MirroredDatabase", "my.db.MountedRelationalDatabase"):
        assert address_of(places, f"/ws/{segment}/Files/x".encode()).path == "ws/my.db/Files/x"
        assert address_below(places, workspace, f"{segment}/Files/x").path == "ws/my.db/Files/x"
    for segment in ("my.db", "none", "Files"):
        with refused(StorageErrorCode.FriendlyNameSupportDisabled):
            address_of(places, f"/ws/{segment}/Files/x".encode())
        with refused(StorageErrorCode.FriendlyNameSupportDisabled):
            address_below(places, workspace, segment)
    for segment in ("none.MirroredDatabase", "my.Lakehouse", workspace.workspace.id):
        with refused(StorageErrorCode.ArtifactNotFound):
            address_of(places, f"/ws/{segment}/Files/x".encode())


ABSENT = {
    StorageErrorCode.InvalidUri: [
        *("", "/", "//", "/onelake", "/onelake/"),
        *("/my%20ws%2F/db/Files", "/my%20ws/db/a%2F/b", "/my%20ws/db/a%2F/"),  # an encoded slash ends no name in a path
        *(f"/my%20ws/db/Files/LandingZone{deep}" for deep in ("/a" * 512, "/a" * 60, "%2Fa" * 60, f"/{'a' * 250}" * 4)),
    ],
    StorageErrorCode.WorkspaceNotFound: ["/LandingZone/T/_1.parquet"],
    StorageErrorCode.ArtifactNotFound: ["/my%20ws/Files/LandingZone/T"],
    StorageErrorCode.PathNotFound: [  # the engine's own
        "/.mirror-engine/items.json",
        "/my%20ws/db/.mirror-engine/ledger.sqlite",
        "/my%20ws/.mirror-engine",
        "/my%20ws/db/Files/.mirror-engine-0123",
        "/my%20ws/db/%2Emirror-engine",
        "/my%20ws%2Fdb%2F%2Emirror-engine%2Fledger.sqlite",
    ],
}


@pytest.mark.parametrize(("code", "path"), [(code, path) for code, paths in ABSENT.items() for path in paths])
def test_path_that_names_nothing_a_client_may_reach_is_refused(code, path, places):
    with refused(code):
        address_of(places, path.encode())


@pytest.mark.parametrize("directory", ["..", "Files/../..", "Files/a\\b", "Files/\0"])
def test_a_directory_leaves_its_path_as_little_as_a_path_the_store(directory, places):
    folder = address_of(places, b"/my%20ws/db")
    with refused(StorageErrorCode.InvalidUri):
        address_below(places, folder, directory)
    with refused(StorageErrorCode.ArtifactNotFound):
        address_below(places, address_of(places, b"/my%20ws"), "Files/x")
