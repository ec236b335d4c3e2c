"""Real Delta tables of the engine `arrow` on a quick folder, behind the port of one process.

Each call of the writer is one step: what comes between its file operations is for tests of power cuts.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from marking import marking
from quick_folder import quick_folder

from mirror_engine.tables.merge.arrow import ArrowWriter


class ArrowLog:
    """What the judge asks of a log."""

    def __init__(self, tables, table, born, port):
        self._tables, self._table, self.born = tables, table, born
        self.maker, self.made = port.process, port.now

    @property
    def state(self):
        return self._tables.real.snapshot(self._table)

    @property
    def version(self):
        return self.state.version

    durable = version  # the writer returns when it is
    late_of_dead = False

    @property
    def schema(self):
        return self.state.schema

    @property
    def rows(self):
        return self._tables.real.rows(self._table).to_pylist()

    def newest_record(self, _):
        return self.state.record, 0, "", 0


class ArrowTables:
    """All Delta tables of a world, by folder; `close` removes them."""

    def __init__(self, watch, chance):
        self.watch, self.logs, self._born, self._held = watch, {}, 0, ExitStack()
        root = Path(self._held.enter_context(quick_folder()))
        (root / "Tables").mkdir()
        self._held.enter_context(marking(chance.choice([1, 1, 3])))
        self.place = root / "Tables", root / "state" / "scratch"
        self.real = ArrowWriter(*self.place)

    def writer(self, port):
        """The port of one process: its memory of logs is its own."""
        return ArrowTablesWriter(self, ArrowWriter(*self.place, key_index_size=1 << 20), port)

    def log(self, table, port):
        """The log of a table, made by the port's process where there is none."""
        if table not in self.logs:
            self._born += 1
            self.logs[table] = ArrowLog(self, table, self._born, port)
        return self.logs[table]

    def end_late(self):
        """Nothing comes late on a disk."""

    def close(self):
        self._held.close()


class ArrowTablesWriter:
    """The port of one process."""

    def __init__(self, tables, real, port):
        self._tables, self._real, self._port = tables, real, port

    def __getattr__(self, name):
        method = getattr(self._real, name)

        def call(*arguments, **options):
            words = " ".join([name, *map(str, arguments[:1])])
            return self._port.call(words, lambda: method(*arguments, **options))

        return call

    def apply(self, table, batch, record, check=lambda: None):
        def commit():
            outcome = self._real.apply(table, batch, record, check)
            self._tables.watch.commits_batch(
                self._port.machine, table, self._tables.log(table, self._port), batch, record
            )
            return outcome

        self._port.reached("commit by arrow")
        return self._port.call(f"commit {table}", commit)

    def drop(self, table, check=lambda: None):
        check()

        def remove():
            if table in self._tables.logs:
                self._tables.watch.drops(self._port.machine, table, self._tables.logs.pop(table))
            self._real.drop(table)

        self._port.call(f"drop {table}", remove)

    def close(self):
        self._real.close()
