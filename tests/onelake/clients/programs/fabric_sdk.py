"""microsoft-fabric-api as its users call it: a mirrored database, its mirroring, and its SQL endpoint."""

from __future__ import annotations

import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.identity import DefaultAzureCredential
from microsoft_fabric_api import FabricClient
from microsoft_fabric_api.generated.core.models import CreateItemRequest, UpdateItemDefinitionRequest
from microsoft_fabric_api.generated.mirroreddatabase.models import (
    CreateMirroredDatabaseRequest,
    UpdateMirroredDatabaseDefinitionRequest,
    UpdateMirroredDatabaseRequest,
)
from places import WORKSPACE, definition, until

CLIENT = FabricClient(DefaultAzureCredential())
DATABASES, MIRRORING = CLIENT.mirroreddatabase.items, CLIENT.mirroreddatabase.mirroring
ITEMS = CLIENT.core.items


def until_status(item, status):
    until(lambda: MIRRORING.get_mirroring_status(WORKSPACE, item).status == status)


def test_a_mirrored_database_s_life():
    body = CreateMirroredDatabaseRequest(display_name="by the SDK", definition=definition("raw"))
    made = DATABASES.create_mirrored_database(WORKSPACE, body)
    assert made.id in [each.id for each in DATABASES.list_mirrored_databases(WORKSPACE, recursive=True)]
    until_status(made.id, "Initialized")
    changed = UpdateMirroredDatabaseDefinitionRequest(definition=definition("else"))
    for _ in range(2):  # a long-running operation, and an answer at once
        DATABASES.update_mirrored_database_definition(WORKSPACE, made.id, changed)
        [part, _] = DATABASES.get_mirrored_database_definition(WORKSPACE, made.id).definition.parts
        assert part.payload == definition("else")["parts"][0]["payload"]
    renamed = UpdateMirroredDatabaseRequest(display_name="by its SDK")
    assert DATABASES.update_mirrored_database(WORKSPACE, made.id, renamed).properties.default_schema == "else"
    MIRRORING.start_mirroring(WORKSPACE, made.id)
    until_status(made.id, "Running")
    assert list(MIRRORING.get_tables_mirroring_status(WORKSPACE, made.id)) == []
    endpoint = DATABASES.get_mirrored_database(WORKSPACE, made.id).properties.sql_endpoint_properties.id
    for _ in range(2):
        assert CLIENT.sqlendpoint.items.refresh_sql_endpoint_metadata(WORKSPACE, endpoint).value == []
    MIRRORING.stop_mirroring(WORKSPACE, made.id)
    until_status(made.id, "Stopped")
    DATABASES.delete_mirrored_database(WORKSPACE, made.id, hard_delete=True)
    with pytest.raises(ResourceNotFoundError):
        DATABASES.get_mirrored_database(WORKSPACE, made.id)


def test_the_same_as_an_item_of_any_type():
    assert WORKSPACE in [each.id for each in CLIENT.core.workspaces.list_workspaces()]
    endpoints = CLIENT.core.workspaces.get_workspace(WORKSPACE).one_lake_endpoints
    assert endpoints.dfs_endpoint == "https://onelake.dfs.fabric.microsoft.com"
    assert list(CLIENT.core.folders.list_folders(WORKSPACE)) == []
    body = CreateItemRequest(display_name="an item", type="MirroredDatabase", definition=definition("raw"))
    made = ITEMS.create_item(WORKSPACE, body)
    assert made.id in [each.id for each in ITEMS.list_items(WORKSPACE, type="MirroredDatabase")]
    assert ITEMS.get_item(WORKSPACE, made.id).display_name == "an item"
    until_status(made.id, "Initialized")
    ITEMS.update_item_definition(WORKSPACE, made.id, UpdateItemDefinitionRequest(definition=definition("else")))
    assert ITEMS.get_item_definition(WORKSPACE, made.id).definition.parts[0].path == "mirroring.json"
    ITEMS.delete_item(WORKSPACE, made.id)
