"""A zone with a history and pending work, which ends in the same tables whatever fails on the way."""

from __future__ import annotations

from shop import TYPES, row


class EventfulZone:
    """Tables with a first file each; `go_on` lands appends, changes, duplicates, a drop, a recreate and a new table."""

    def __init__(self, publisher):
        self.publisher = publisher
        self.orders = publisher.table("Sales.Orders", keys=["id"], types=TYPES)
        self.orders.initial_load(row(1), row(2))
        for name in ("Gone", "Again"):
            publisher.table(name, keys=["id"]).initial_load({"id": 1}, {"id": 2})

    def go_on(self):
        self.orders.insert(row(3))
        self.orders.apply_changes((0, {"id": 3, "city": "Graz"}), (1, {"id": 1, "city": "Steyr"}))
        self.orders.apply_changes((2, row(2)), (4, row(4)))
        for name in ("Gone", "Again"):
            self.publisher.folder(name).drop()
        self.publisher.table("Again", keys=["id"]).initial_load({"id": 9})
        self.publisher.table("New").insert({"n": 1})


def check(mirror, updates=0):
    """All is applied, with so many updates more in files of their own, and nothing twice."""
    assert mirror.tables() == ["Sales/Orders", "dbo/Again", "dbo/New"]
    rows = sorted((row["id"], row["city"]) for row in mirror.read_table("Orders").to_pylist())
    assert rows == [(1, "Steyr"), (3, "Graz"), (3, "Linz"), (4, "Linz")]
    assert mirror.read_table("Again").to_pylist() == [{"id": 9}]
    assert mirror.read_table("New").to_pylist() == [{"n": 1}]
    for table in mirror.tables():
        files = [path for commit in mirror.history(table) for path in commit.files]
        assert len(files) == len(set(files)), f"{table}: a change file is in two commits"
    status = {table.name.normalized: table for table in mirror._status().tables}
    assert (status["Sales.Orders"].rows_processed, status["Sales.Orders"].watermarks) == (
        7 + updates,
        {"": 4 + updates},
    )
    assert all(not table.pending_files for table in status.values())
