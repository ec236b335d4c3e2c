"""requests and httpx without an SDK."""

from __future__ import annotations

import json

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.parametrize("library", ["requests", "httpx"])]

ZONE = "{item}/Files/LandingZone"


@pytest.fixture
def ask(client, library):
    plain = client("plain")
    return lambda *arguments: plain.ask(library, *arguments)


def land(ask, table, name, content):
    assert ask("PUT", f"{ZONE}/{table}/{name}?resource=file")["status"] == 201
    appended = ask("PATCH", f"{ZONE}/{table}/{name}?action=append&position=0&flush=true", {}, content)
    assert appended["status"] == 202


@pytest.mark.parametrize(
    "source",
    [
        "{dfs}/{workspace}/{landing_zone}/",
        "/{workspace}/{landing_zone}/",
        "/onelake/{workspace}/{landing_zone}/",
    ],
)
@pytest.mark.parametrize("suffix", ["", "?resource=file", "?sv=2024-11-04&sig=x"])
def test_4_a_rename_s_source_is_a_path_or_a_whole_url(ask, table, landing_zone, source, suffix):
    land(ask, table, "_a.csv", "abc")
    renamed = ask("PUT", f"{ZONE}/{table}/a.csv", {"x-ms-rename-source": f"{source}{table}/_a.csv{suffix}"})
    assert (renamed["status"], [path.name for path in (landing_zone / table).iterdir()]) == (201, ["a.csv"])


def test_4_a_rename_s_source_on_another_host_or_without_its_workspace_is_refused(ask, table, landing_zone):
    land(ask, table, "_a.csv", "abc")
    found = {
        source: ask("PUT", f"{ZONE}/{table}/a.csv", {"x-ms-rename-source": source})
        for source in (
            f"https://else.dfs.core.windows.net/{{workspace}}/{ZONE}/{table}/_a.csv",
            f"/LandingZone/{table}/_a.csv",
            f"/{{workspace}}/{ZONE}/{table}/none.csv",
        )
    }
    codes = [(each["status"], each["headers"]["x-ms-error-code"]) for each in found.values()]
    assert codes == [(400, "InvalidSourceUri"), (404, "SourcePathNotFound"), (404, "SourcePathNotFound")]
    assert [path.name for path in (landing_zone / table).iterdir()] == ["_a.csv"]


def test_13_append_and_flush_in_one_request(ask, table, landing_zone):
    land(ask, table, "a.csv", "id\n1\n")
    assert (landing_zone / table / "a.csv").read_bytes() == b"id\n1\n"
    more = ask("PATCH", f"{ZONE}/{table}/a.csv?action=append&position=5&flush=true", {}, "2\n")
    assert more["status"] == 202
    assert (landing_zone / table / "a.csv").read_bytes() == b"id\n1\n2\n"


def test_13_empty_segments_count_for_nothing(ask, table, landing_zone):
    land(ask, f"/{table}/", "/a.csv", "abc")
    assert (landing_zone / table / "a.csv").read_bytes() == b"abc"
    assert ask("GET", f"{ZONE}//{table}//a.csv")["text"] == "abc"


@pytest.mark.parametrize("directory", ["/{0}/", "{0}", "/{0}", "{0}/"])
def test_13_the_listed_directory_s_outer_slashes_are_optional(ask, table, directory):
    land(ask, table, "a.csv", "abc")
    inner = directory.format(f"{ZONE}/{table}")
    found = ask("GET", f"?resource=filesystem&recursive=false&directory={inner}")
    [path] = json.loads(found["text"])["paths"]
    assert path["name"].endswith(f"/Files/LandingZone/{table}/a.csv")


def test_13_the_item_in_the_listed_path(ask, table, served):
    land(ask, table, "a.csv", "abc")
    found = ask("GET", f"{ZONE}?resource=filesystem&recursive=true&directory={table}")
    [path] = json.loads(found["text"])["paths"]
    assert path["name"] == f"{served.connection.item_id}/Files/LandingZone/{table}/a.csv"
    assert (path["contentLength"], path.get("isDirectory")) == ("3", None)
    assert path["lastModified"].endswith(" GMT")
    assert not path["etag"].startswith('"')


def test_13_the_item_by_name_with_its_type(ask, table, landing_zone, served):
    made = ask(
        "PUT", f"{served.connection.item}.MountedRelationalDatabase/Files/LandingZone/{table}?resource=directory"
    )
    assert made["status"] == 201
    assert (landing_zone / table).is_dir()


def test_a_publisher_sees_what_onelake_would_refuse(ask, table):
    asked = {
        ("PUT", "Files/LandingZone/T?resource=directory"): (404, "ArtifactNotFound"),
        ("PUT", "{item}/Else?resource=directory"): (403, "ManagedFolderOperationNotAllowed"),
        ("DELETE", "{item}/Files?recursive=true"): (403, "ManagedFolderOperationNotAllowed"),
        ("DELETE", "{item}?recursive=true"): (403, "ManagedFolderOperationNotAllowed"),
        ("PATCH", f"{ZONE}/{table}/none?action=append&position=0"): (404, "PathNotFound"),
        ("PATCH", f"{ZONE}/{table}?action=setAccessControl"): (400, "UnsupportedQueryParameter"),
        ("GET", f"{ZONE}/{table}?resource=filesystem"): (404, "PathNotFound"),
        ("GET", f"{ZONE}?resource=filesystem&continuation=!"): (400, "InvalidQueryParameterValue"),
    }
    body = {"PATCH": "x"}
    found = {each: ask(*each, {}, body.get(each[0], "")) for each in asked}
    assert {
        each: (reported["status"], reported["headers"]["x-ms-error-code"]) for each, reported in found.items()
    } == asked
    assert all(json.loads(reported["text"])["error"]["code"] == asked[each][1] for each, reported in found.items())
