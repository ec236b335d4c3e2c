"""Fabric's definition of a mirrored database: `mirroring.json`, as the REST API takes and gives it."""

from __future__ import annotations

import json
import uuid
from base64 import b64decode, b64encode
from typing import Any

from mirror_engine.config import Config
from mirror_engine.errors import ConfigError
from mirror_engine.onelake.errors import FabricApiError, FabricErrorCode

MIRRORING = "mirroring.json"
_INLINE = "InlineBase64"
_SOURCE, _TARGET, _FORMAT = "GenericMirror", "MountedRelationalDatabase", "Delta"
_MAX_DAYS = 30
PLAIN = json.dumps(
    {
        "properties": {
            "source": {"type": _SOURCE, "typeProperties": {}},
            "target": {"type": _TARGET, "typeProperties": {"format": _FORMAT}},
        }
    }
).encode()  # the definition of items that were not created by the REST API


def corrupted(finding: str) -> FabricApiError:
    """The error of a definition that is not valid."""
    return FabricApiError(FabricErrorCode.CorruptedPayload, finding)


def payload_of(definition: object) -> bytes:
    """The validated `mirroring.json` in the REST API's `definition`; CorruptedPayload."""
    parts = definition.get("parts") if isinstance(definition, dict) else None
    if not isinstance(parts, list) or not all(isinstance(part, dict) for part in parts):
        raise corrupted("definition.parts is not a list of parts.")
    mirroring = [part for part in parts if part.get("path") == MIRRORING]
    if len(mirroring) != 1:
        raise corrupted(f"definition.parts holds {len(mirroring)} parts with the path {MIRRORING}.")
    if mirroring[0].get("payloadType") != _INLINE:
        raise corrupted(f"The payloadType of {MIRRORING} is not {_INLINE}.")
    try:
        payload = b64decode(mirroring[0].get("payload"), validate=True)
    except (TypeError, ValueError):
        raise corrupted(f"The payload of {MIRRORING} is not base64.") from None
    read_definition(payload)
    return payload


def definition_json(name: str, description: str, payload: bytes) -> dict[str, Any]:
    """The REST API's `definition` of an item with that name, description and `mirroring.json`."""
    described = {"description": description} if description else {}
    platform = {
        "$schema": "https://developer.microsoft.com/json-schemas/fabric/gitIntegration/platformProperties/2.0.0/schema.json",
        "metadata": {"type": "MirroredDatabase", "displayName": name, **described},
        "config": {"version": "2.0", "logicalId": str(uuid.UUID(int=0))},
    }
    parts = {MIRRORING: payload, ".platform": json.dumps(platform, indent=2).encode()}
    return {
        "parts": [
            {"path": path, "payload": b64encode(part).decode(), "payloadType": _INLINE} for path, part in parts.items()
        ]
    }


def read_definition(payload: bytes) -> dict[str, Any]:
    """The options of `Config` that a `mirroring.json` sets; unknown properties are ignored. CorruptedPayload."""
    try:
        content = json.loads(payload)
    except (ValueError, RecursionError):
        raise corrupted(f"{MIRRORING} is not JSON.") from None
    properties = _object(content, "properties")
    source, target = _object(properties, "source"), _object(properties, "target")
    typed = {} if target.get("typeProperties") is None else _object(target, "typeProperties")
    schema, days, feed = (typed.get(name) for name in ("defaultSchema", "retentionInDays", "enableDeltaChangeDataFeed"))
    checks = (
        (source.get("type") == _SOURCE, f"source.type is not {_SOURCE}"),
        (target.get("type") == _TARGET, f"target.type is not {_TARGET}"),
        (typed.get("format") in (None, _FORMAT), f"target.typeProperties.format is not {_FORMAT}"),
        (schema is None or _is_schema(schema), "target.typeProperties.defaultSchema is not a schema name"),
        (
            days is None or (type(days) is int and 1 <= days <= _MAX_DAYS),  # True is an int, too
            f"target.typeProperties.retentionInDays is not from 1 to {_MAX_DAYS}",
        ),
        (type(feed) in (bool, type(None)), "target.typeProperties.enableDeltaChangeDataFeed is not true or false"),
    )
    for is_valid, finding in checks:
        if not is_valid:
            raise corrupted(f"properties.{finding}.")
    wanted = None if feed is None else "on" if feed else "off"
    options = {"default_schema": schema, "vacuum_retention_days": days, "change_data_feed": wanted}
    return {name: value for name, value in options.items() if value is not None}


def _object(holder: object, name: str) -> dict[str, Any]:
    value = holder.get(name) if isinstance(holder, dict) else None
    if not isinstance(value, dict):
        raise corrupted(f"{name} is missing, or not an object.")
    return value


def _is_schema(name: object) -> bool:
    try:
        return isinstance(name, str) and Config(default_schema=name).default_schema == name
    except ConfigError:
        return False
