"""A publisher without any library of Azure's: finds its database by name, starts it, appends and flushes in one."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import time

import requests

LOGIN = "https://login.microsoftonline.com"
FABRIC = "https://api.fabric.microsoft.com/v1"
ONELAKE = "https://onelake.dfs.fabric.microsoft.com"
COLUMNS = {"sku": "String", "price": "Double", "stock": "Int32"}
METADATA = {
    "KeyColumns": ["sku"],
    "FileFormat": "CSV",
    "FileExtension": "csv",
    "FileFormatTypeProperties": {"FirstRowAsHeader": True, "RowSeparator": "\r\n"},
    "SchemaDefinition": {
        "Columns": [{"Name": name, "DataType": kind, "IsNullable": name != "sku"} for name, kind in COLUMNS.items()]
    },
}


def session(scope: str) -> requests.Session:
    """A session with a token of its own."""
    reported = os.environ
    form = {
        "grant_type": "client_credentials",
        "client_id": reported["AZURE_CLIENT_ID"],
        "client_secret": reported["AZURE_CLIENT_SECRET"],
        "scope": f"{scope}/.default",
    }
    answer = requests.post(f"{LOGIN}/{reported['AZURE_TENANT_ID']}/oauth2/v2.0/token", form, timeout=30)
    answer.raise_for_status()
    made = requests.Session()
    made.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"
    return made


def main(workspace_name: str, database_name: str) -> None:
    fabric = session("https://api.fabric.microsoft.com")
    workspace = named(fabric, "/workspaces", workspace_name)
    databases = f"/workspaces/{workspace}/mirroredDatabases"
    database = named(fabric, databases, database_name)
    started(fabric, f"{databases}/{database}")
    onelake = session("https://storage.azure.com")
    table = f"{ONELAKE}/{workspace}/{database}/Files/LandingZone//Products"
    land(onelake, f"{table}/_metadata.json", json.dumps(METADATA).encode())
    land(onelake, f"{table}/{1:020d}.csv", text([], ["a", "1.25", "3"], ["b", "2", ""], ['say "c", d', "0.5", "7"]))
    land(onelake, f"{table}/{2:020d}.csv", text(["__rowMarker__"], ["b", "2.5", "9", "1"], ["a", "", "", "2"]))
    land(onelake, f"{table}/{3:020d}.csv", text(["__rowMarker__"], ["e", "1e2", "-1", "4"]))


def named(fabric: requests.Session, path: str, name: str) -> str:
    answer = fabric.get(f"{FABRIC}{path}", timeout=30)
    answer.raise_for_status()
    [found] = [each["id"] for each in answer.json()["value"] if each["displayName"] == name]
    return found


def started(fabric: requests.Session, database: str) -> None:
    for _ in range(60):
        answer = fabric.post(f"{FABRIC}{database}/getMirroringStatus", timeout=30)
        answer.raise_for_status()
        if answer.json()["status"] == "Running":
            return
        if answer.json()["status"] in {"Initialized", "Stopped"}:
            fabric.post(f"{FABRIC}{database}/startMirroring", timeout=30).raise_for_status()
        time.sleep(0.5)
    sys.exit("The database does not start.")


def text(more: list[str], *rows: list[str]) -> bytes:
    content = io.StringIO()
    csv.writer(content).writerows([[*COLUMNS, *more], *rows])
    return content.getvalue().encode()


def land(onelake: requests.Session, url: str, content: bytes) -> None:
    """A file that is whole when it gets its name."""
    folder, _, name = url.rpartition("/")
    hidden = f"{folder}/_{name}"
    onelake.put(f"{hidden}?resource=file", timeout=30).raise_for_status()
    onelake.patch(f"{hidden}?action=append&position=0&flush=true", data=content, timeout=30).raise_for_status()
    onelake.put(url, headers={"x-ms-rename-source": f"{hidden}?resource=file"}, timeout=30).raise_for_status()


if __name__ == "__main__":
    main(*sys.argv[1:])
