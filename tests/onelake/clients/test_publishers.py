"""Whole programs of publishers, run to their end in the printed environment; an engine mirrors what they meant."""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

PUBLISHERS = Path(__file__).parent / "publishers"


def test_a_publisher_renames_into_place_drops_and_republishes_its_table(mirrored):
    for called in ("customer", "client"):
        mirrored.publish(sys.executable, str(PUBLISHERS / "sdk_rename.py"), called)
        expected = [
            {"id": 1, "name": "renamed", "balance": 2.5},
            {"id": 1000, "name": f"{called} 1000", "balance": 1500.0},
            {"id": 1001, "name": "new", "balance": 0.5},
            {"id": 1002, "name": "first seen", "balance": None},
            {"id": 999, "name": "again", "balance": 9.0},
        ]
        mirrored.until_rows("Sales/Customers", expected)


def test_a_publisher_with_plain_requests_that_appends_and_flushes_in_one(mirrored):
    info = mirrored.connection
    mirrored.publish(sys.executable, str(PUBLISHERS / "plain_append.py"), info.workspace, info.item)
    expected = [
        {"sku": "b", "price": 2.5, "stock": 9},
        {"sku": "e", "price": 100.0, "stock": -1},
        {"sku": 'say "c", d', "price": 0.5, "stock": 7},
    ]
    mirrored.until_rows("dbo/Products", expected)


def test_a_publisher_under_node_that_moves_into_place(mirrored, node):
    mirrored.publish("node", node(PUBLISHERS / "node_move.mjs"))
    at = dt.datetime(2026, 11, 2, 8, 16, tzinfo=dt.timezone.utc)
    found = [{"sensor": "south", "at": at, "value": 2.25}, {"sensor": "wëst", "at": at, "value": -1.0}]
    mirrored.until_rows("dbo/Sensors", found)
