"""The REST part, tested against its OpenAPI document with generated requests."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import mkdtemp

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirror_engine.onelake.fabric_rest import DOCUMENT, FabricApi, fabric_app
from mirror_engine.onelake.items import Items
from mirror_engine.onelake.replication import NullReplication
from mirror_engine.onelake.store import LocalStore

EXAMPLES = int(os.environ.get("MIRROR_TEST_REST_EXAMPLES", "15"))

_items = Items(LocalStore(Path(mkdtemp())))


@pytest.fixture(scope="module")
def operations():
    """Each operation of the document by its id."""
    import schemathesis  # noqa: PLC0415 - it takes seconds, of every run that only collects

    document = schemathesis.openapi.from_asgi("/v1/openapi.json", fabric_app(FabricApi(_items, NullReplication())))
    return {found.ok().definition.raw["operationId"]: found.ok() for found in document.get_all_operations()}


@pytest.fixture(scope="module")
def checks():
    from schemathesis import checks as general  # noqa: PLC0415 - as above
    from schemathesis.specs.openapi import checks  # noqa: PLC0415 - as above

    return [
        general.not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]


def known(parameter):
    """A value that names something there is; what an earlier request took away is put back."""
    item = _items.ensure("shop", "orders")
    return item.workspace.id if parameter == "workspaceId" else item.id


@pytest.mark.slow
@pytest.mark.parametrize(
    "operation", [operation["operationId"] for methods in DOCUMENT["paths"].values() for operation in methods.values()]
)
def test_whatever_is_asked_the_answer_is_one_of_the_document(operations, checks, operation):
    reached = set()

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=operations[operation].as_strategy(), aimed=st.booleans())
    def ask(case, aimed):
        if aimed:  # a drawn GUID is never one that is there
            case.path_parameters |= {name: known(name) for name in case.path_parameters}
        response = case.call()
        reached.add(response.status_code)
        case.validate_response(response, checks=checks)

    ask()
    assert reached - {404}
