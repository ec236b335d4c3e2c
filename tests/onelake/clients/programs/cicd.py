"""fabric-cicd as a pipeline calls it: mirrored databases from a repository's folder, published, changed, removed."""

from __future__ import annotations

import json
import os

from azure.identity import DefaultAzureCredential
from places import WORKSPACE, mirroring, until

os.environ["DEFAULT_API_ROOT_URL"] = "https://api.fabric.microsoft.com"  # instead of Power BI's host
from fabric_cicd import FabricWorkspace, publish_all_items, unpublish_all_orphan_items

KINDS = ["MirroredDatabase"]


def commit(repository, name, schema):
    folder = repository / f"{name}.MirroredDatabase"
    folder.mkdir(exist_ok=True)
    metadata = {"type": "MirroredDatabase", "displayName": name}
    config = {"version": "2.0", "logicalId": "7f1d3c7e-0000-4000-8000-000000000001"}
    (folder / ".platform").write_text(json.dumps({"metadata": metadata, "config": config}))
    (folder / "mirroring.json").write_text(mirroring(schema))


def workspace_of(repository, **place):
    place = place or {"workspace_id": WORKSPACE}
    kinds = {"repository_directory": str(repository), "item_type_in_scope": KINDS}
    return FabricWorkspace(**place, **kinds, token_credential=DefaultAzureCredential())


def deployed(workspace):
    listed = workspace.endpoint.invoke("GET", f"{workspace.base_api_url}/mirroredDatabases")["body"]["value"]
    return {each["displayName"]: each["properties"]["defaultSchema"] for each in listed}


def until_initialized(workspace):
    """A new item's schema does not change before."""
    for each in workspace.endpoint.invoke("GET", f"{workspace.base_api_url}/mirroredDatabases")["body"]["value"]:
        ask = "POST", f"{workspace.base_api_url}/mirroredDatabases/{each['id']}/getMirroringStatus"
        until(lambda ask=ask: workspace.endpoint.invoke(*ask)["body"]["status"] != "Initializing")


def test_a_repository_is_published_changed_and_removed(tmp_path):
    commit(tmp_path, "by pipeline", "raw")
    before = deployed(workspace_of(tmp_path))
    for schema in ("raw", "else", "raw"):
        commit(tmp_path, "by pipeline", schema)
        publish_all_items(workspace_of(tmp_path))
        assert deployed(workspace_of(tmp_path)) == before | {"by pipeline": schema}
        until_initialized(workspace_of(tmp_path))
    (tmp_path / "by pipeline.MirroredDatabase/mirroring.json").unlink()
    (tmp_path / "by pipeline.MirroredDatabase/.platform").unlink()
    named = workspace_of(tmp_path, workspace_name=os.environ["TEST_WORKSPACE"])
    kept = "|".join(map("^{}$".format, before))
    unpublish_all_orphan_items(named, item_name_exclude_regex=kept)
    assert deployed(named) == before
