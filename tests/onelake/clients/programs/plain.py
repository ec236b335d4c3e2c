"""requests, httpx, curl and Arrow's own file system: no SDK of Azure's."""

from __future__ import annotations

import shutil
import subprocess

import httpx
import pytest
import requests
from azure.identity import DefaultAzureCredential
from places import DFS, FOLDER, HTTP, ITEM, KEY, LANDING_ZONE, MIB, SCOPE, TABLE, WORKSPACE
from pyarrow import fs

TOKEN = {"Authorization": f"Bearer {DefaultAzureCredential().get_token(SCOPE).token}"}
SESSION = requests.Session()
SESSION.headers.update(TOKEN)
CLIENTS = {"requests": (SESSION, "data"), "httpx": (httpx.Client(headers=TOKEN), "content")}


@pytest.fixture(params=CLIENTS)
def ask(request):
    client, body = CLIENTS[request.param]

    def ask(method, path, status, content="", **headers):
        names = {name.replace("_", "-"): text for name, text in headers.items()}
        answer = client.request(method, f"{DFS}/{WORKSPACE}/{path}", headers=names, **{body: content})
        assert answer.status_code == status, answer.text
        return answer

    return ask


@pytest.mark.parametrize("prefix", [f"{DFS}/", "/onelake/"])
def test_a_file_is_landed_renamed_by_path_or_url_and_read(ask, table, prefix):
    zone = f"{LANDING_ZONE}//{table}//"
    ask("PUT", f"{zone}/_a.csv?resource=file", 201)
    ask("PATCH", f"{zone}/_a.csv?action=append&position=0&flush=true", 202, "id\n1\n")
    source = f"{prefix}{WORKSPACE}/{LANDING_ZONE}/{table}/_a.csv?sv=2024-11-04&sig=x"
    ask("PUT", f"{zone}a.csv", 201, x_ms_rename_source=source)
    ask("PATCH", f"{zone}a.csv?action=append&position=5&flush=true", 202, "2\n")
    assert [(path.name, path.read_bytes()) for path in (FOLDER / table).iterdir()] == [("a.csv", b"id\n1\n2\n")]
    assert ask("GET", f"{zone}a.csv", 200).text == "id\n1\n2\n"


def test_the_table_apis_are_asked_by_production_s_name():
    warehouse = f"{WORKSPACE}/{ITEM}"
    config = SESSION.get(f"{TABLE}/iceberg/v1/config", params={"warehouse": warehouse}).json()
    assert config["overrides"]["prefix"] == warehouse
    assert SESSION.get(f"{TABLE}/iceberg/v1/{warehouse}/namespaces").json()["namespaces"] == []
    schemas = SESSION.get(f"{TABLE}/delta/{warehouse}/api/2.1/unity-catalog/schemas", params={"catalog_name": ITEM})
    assert schemas.json()["schemas"] == []


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is missing")
def test_curl_creates_appends_what_it_announces_first_flushes_and_renames(table, tmp_path):
    url = f"{DFS}/{WORKSPACE}/{LANDING_ZONE}/{table}"
    (tmp_path / "large").write_bytes(b"x" * 3 * MIB)  # so large that curl sends `Expect: 100-continue`
    for words in (
        ["-X", "PUT", "-d", "", f"{url}/_a?resource=file"],
        ["-X", "PATCH", "--data-binary", f"@{tmp_path / 'large'}", f"{url}/_a?action=append&position=0"],
        ["-X", "PATCH", "-d", "", f"{url}/_a?action=flush&position={3 * MIB}"],
        ["-X", "PUT", "-d", "", "-H", f"x-ms-rename-source: /{WORKSPACE}/{LANDING_ZONE}/{table}/_a", f"{url}/a"],
    ):
        subprocess.run(["curl", "-sS", "--fail-with-body", *words], check=True, timeout=60)
    assert [(path.name, path.stat().st_size) for path in (FOLDER / table).iterdir()] == [("a", 3 * MIB)]


def test_arrow_s_own_file_system_writes_reads_lists_moves_and_deletes(table):
    ways = {f"{kind}_storage_{part}": text for kind in ("blob", "dfs") for part, text in _address().items()}
    files = fs.AzureFileSystem("onelake", account_key=KEY, **ways)
    folder = f"{WORKSPACE}/{LANDING_ZONE}/{table}"
    files.create_dir(folder)
    with files.open_output_stream(f"{folder}/a") as file:
        file.write(b"0123456789")
    with files.open_input_file(f"{folder}/a") as file:
        assert file.read() == b"0123456789"
    found = files.get_file_info(fs.FileSelector(folder))
    assert [(each.base_name, each.type.name, each.size) for each in found] == [("a", "File", 10)]
    files.move(f"{folder}/a", f"{folder}/b")
    assert [each.type.name for each in files.get_file_info([f"{folder}/a", f"{folder}/b"])] == ["NotFound", "File"]
    files.delete_dir(folder)
    assert files.get_file_info(folder).type.name == "NotFound"


def _address():
    return {"authority": HTTP.removeprefix("http://"), "scheme": "http"}
