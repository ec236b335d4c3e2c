"""A shop on real Delta tables without Spark, which nothing calls for where no row is in them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from shop import TYPES, Shop, row

from mirror_engine.landing_zone.layout import SCRATCH, TABLES
from mirror_engine.tables.deferred import DeferredWriter
from mirror_engine.tables.merge.spark import SparkDeltaWriter

HINT = "_last_checkpoint"
NO_ROWS = pa.schema(TYPES.items()).empty_table()


class Lake(Shop):
    """Its table `Orders` has one commit more than `files` were applied, the newest of that version."""

    def __init__(self, root, files=5):
        super().__init__(root, max_batch_files=1)
        self.begin()
        self.table = self.orders()
        self.table.land_parquet(NO_ROWS)
        for _ in range(1, files):
            self.land()
        self.sync()
        self.folder = root / TABLES / "dbo/Orders"
        self.log = self.folder / "_delta_log"

    def begin(self):
        """As another process would: with a writer that has read nothing yet."""
        tables, scratch = self.root / TABLES, self.root / SCRATCH
        real = SparkDeltaWriter(tables, scratch, lambda: pytest.fail("Spark was started"))
        self.writer = DeferredWriter(tables, lambda: real)

    def sync(self):
        self.begin()
        return super().sync()

    def status(self, *table):
        self.begin()
        return super().status(*table)

    def land(self):
        self.table.delete(row(99))

    def commit(self, version):
        return self.log / f"{version:020}.json"

    def clean_up(self, *, keeps=0):
        """Another program writes a checkpoint, and deletes the commits before it but the newest ones."""
        table = DeltaTable(str(self.folder))
        table.create_checkpoint()
        for version in range(table.version() - keeps):
            self.commit(version).unlink(missing_ok=True)

    def checkpoint(self, *, cleaned_up=False):
        """Of version 3."""
        DeltaTable(str(self.folder), version=3).create_checkpoint()
        if cleaned_up:
            for version in range(4):
                self.commit(version).unlink()
        return self.log / f"{3:020}.checkpoint.parquet"
