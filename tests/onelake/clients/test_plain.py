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


def land(ask, path, content):
    assert ask("PUT", f"{ZONE}/{path}?resource=file")["status"] == 201
    assert ask("PATCH", f"{ZONE}/{path}?action=append&position=0&flush=true", {}, content)["status"] == 202


@pytest.mark.parametrize("source", ["{dfs}/{workspace}/{landing_zone}/", "/onelake/{workspace}/{landing_zone}/"])
def test_a_file_is_landed_renamed_by_path_or_url_and_read(ask, table, landing_zone, source):
    land(ask, f"//{table}///_a.csv", "id\n1\n")
    source = {"x-ms-rename-source": f"{source}{table}/_a.csv?sv=2024-11-04&sig=x"}
    assert ask("PUT", f"{ZONE}/{table}/a.csv", source)["status"] == 201
    more = ask("PATCH", f"{ZONE}/{table}/a.csv?action=append&position=5&flush=true", {}, "2\n")
    assert more["status"] == 202
    assert [(path.name, path.read_bytes()) for path in (landing_zone / table).iterdir()] == [("a.csv", b"id\n1\n2\n")]
    assert ask("GET", f"{ZONE}//{table}//a.csv")["text"] == "id\n1\n2\n"


def test_listings_name_the_item_as_the_url_does(ask, table, served):
    land(ask, f"{table}/a.csv", "abc")
    for url in (
        f"?resource=filesystem&recursive=false&directory=/{ZONE}/{table}/",
        f"{ZONE}?resource=filesystem&recursive=true&directory={table}",
    ):
        [path] = json.loads(ask("GET", url)["text"])["paths"]
        assert path["name"] == f"{served.connection.item_id}/Files/LandingZone/{table}/a.csv"
        assert (path["contentLength"], path.get("isDirectory")) == ("3", None)


def test_errors_arrive_as_onelake_sends_them(ask, table):
    for method, path, status, code in (
        ("PUT", "Files/LandingZone/T?resource=directory", 404, "ArtifactNotFound"),
        ("DELETE", "{item}/Files?recursive=true", 403, "ManagedFolderOperationNotAllowed"),
        ("GET", f"{ZONE}/{table}?resource=filesystem", 404, "PathNotFound"),
    ):
        answer = ask(method, path)
        assert (answer["status"], answer["headers"]["x-ms-error-code"]) == (status, code)
        assert json.loads(answer["text"])["error"]["code"] == code
