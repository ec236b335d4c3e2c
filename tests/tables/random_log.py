"""Random tables and their change files: all types, partitions, duplicates, new columns, odd names, any threshold."""

from __future__ import annotations

from collections import Counter

from delta_scenario import KEYS, PARTITIONS, Scenario, file_rows, known_log, passthrough_rows, replayed, schema_of
from independent_readers import content

from mirror_engine.landing_zone.change import MARKER_COLUMN
from mirror_engine.tables.changes import counted, key_index
from mirror_engine.tables.log import commit, data_files
from mirror_engine.tables.merge import arrow, by_position, compaction, spark

ODD_NAMES = ["{}", "{}", "my {}", "{},;=", "ü`{}"]


def draw_thresholds(choose, patch):
    """Have a small table take every way: rewrites and vectors, many files and row groups, folds, the index of keys."""
    for module, name, values in (
        (by_position, "VECTORS_FROM_ROWS", [0, 0, 10**6]),
        (by_position, "_VECTOR_FILE_ROWS", [1, 5, 10**6]),
        (by_position, "_MOST_MARKED", [1, 3]),
        (spark, "VECTORS_FROM_ROWS", [0, 10**6]),
        (spark, "SMALL_ROWS", [0, 10**6]),
        (arrow, "_COMMITS", [1, 5, 8]),
        (compaction, "_CROWD", [2, 3, 8]),
        (compaction, "_MUCH_MARKED", [1, 10]),
        (compaction, "SMALL_BYTES", [1, 10**8]),
        (compaction, "_TARGET_BYTES", [3000, 10**8]),
        (compaction, "_FOLDED_AT_ONCE", [5000, 10**8]),
        (key_index, "_LEAST_ROWS", [1, 10**6]),
        (key_index, "_ROWS_PER_KEY", [0, 2]),
        (data_files, "_GROUP_BYTES", [1, 10**6]),
        (data_files, "FILE_ROWS", [4, 10**6]),
        (data_files, "_MOST_OPEN", [1, 64]),
        (data_files, "_SAMPLED_ROWS", [2, 10**4]),
        (data_files, "_SMALL_BYTES", [0, 10**6]),
        (counted, "_BATCH_ROWS", [3, 10**6]),
    ):
        patch.setattr(module, name, choose.choice(values))
    patch.setitem(commit._PROPERTIES, "delta.checkpointInterval", "7")


class RandomLog:
    """A random table with its batches, for one writer or several in turns; the reference is `replay`.

    Args:
        choose: a `random.Random`.
        keys: types of the key columns, none for a table without a key; by default any.
        names: formats of the columns' names.
        parts: values of partition columns.
        part_counts: how many of these there may be.

    Attributes:
        rows: what `replay` says that the table holds.
        ways: how batches were applied.
        is_vacuumed: whether files of older versions may be gone.
    """

    def __init__(  # noqa: PLR0913 - all that is drawn
        self,
        choose,
        *,
        table="dbo/T",
        keys=None,
        names=ODD_NAMES,
        parts=PARTITIONS,
        part_counts=(0, 0, 1, 2),
    ):
        self.rows, self.ways, self.is_vacuumed = [], set(), False
        self._choose, self._names = choose, names
        self._cells, self._columns, self._parts = {}, [], []
        keys = choose.sample([*KEYS], choose.choice([0, 1, 1, 1, 2, 3])) if keys is None else keys
        key_columns = [self._new_column("k", kind, 4) for kind in keys]
        self._parts = [self._new_column("p", "string", 4, parts) for _ in range(choose.choice(part_counts))]
        for _ in range(choose.randrange(1, 4)):
            self._new_column("v", choose.choice([*KEYS]))
        choose.shuffle(self._columns)
        if key_columns and choose.random() < 0.3:
            key_columns += self._parts[:1]
        self.scenario = Scenario(None, None, key_columns, table)

    def change(self, writer, landed):
        """Apply the next batch, which meets what `replay` meets; whole new files are in the folder `landed`."""
        choose, scenario = self._choose, self.scenario
        scenario.writer = writer
        if self.rows and choose.random() < 0.1:
            self._new_column("n", choose.choice([*KEYS]))
        scenario.schema = schema_of(*self._columns, partitions=self._parts)
        snapshot = writer.snapshot(scenario.table)
        if snapshot and choose.random() < 0.5:  # a log that stays open has what one has that is opened now
            assert sorted(map(str, snapshot.log.data_files())) == sorted(
                map(str, known_log(snapshot.log.folder).data_files())
            )
        takes_files = snapshot.takes_files if snapshot else not self._parts
        is_added = takes_files and set("".join(scenario.schema.names)).isdisjoint(" ,;=") and choose.random() < 0.2
        files = [self._file(number, is_added=is_added) for number in range(choose.choice([1, 1, 2, 3]))]
        copies = [passthrough_rows(landed, file, scenario.keys) for file in files] if is_added else files
        outcome = scenario.apply(*copies, snapshot=snapshot if choose.random() < 0.7 else None)
        self.ways.add(outcome.applied_by)
        assert outcome.matches == tuple(map(self._replayed, files))

    def maintain(self, writer):
        """Compact and vacuum the table."""
        hours = self._choose.choice([0.0, 168.0])
        self.is_vacuumed |= not hours
        writer.maintain(self.scenario.table, hours)
        self.scenario.version = known_log(writer.path(self.scenario.table)).version

    def differences(self, found):
        """Rows that were read and are others than `replay` says, with how often they are there too many or too few."""
        wrong = Counter(map(content, found))
        wrong.subtract(map(content, self.rows))
        return {row: count for row, count in wrong.items() if count}

    def _new_column(self, letter, kind, most=10**6, values=None):
        """Give the table a column: nullable, as all that come later are; returns its name."""
        name = self._choose.choice(self._names).format(f"{letter}{len(self._columns)}")
        values = KEYS[kind] if values is None else values
        self._cells[name] = [*self._choose.sample(values, min(most, len(values))), None]
        self._columns.append(f"{name}:{kind}")
        return name

    def _file(self, number, *, is_added):
        """A file with some of the columns: keys and partitions always, one that is added unchanged all."""
        choose, scenario = self._choose, self.scenario
        needed = {*scenario.keys, *self._parts}
        names = [name for name in scenario.schema.names if is_added or name in needed or choose.random() < 0.9]
        choose.shuffle(names)
        markers = (0, 1, 1, 2, 4) if scenario.keys and not is_added else (0,)
        rows = [
            (choose.choice(markers), *(self._cell(name) for name in names))
            for _ in range(choose.choice([int(is_added), 1, 3, 3, 12, 30]))
        ]
        return file_rows(f"{scenario.batch + 1:018}{number:02}.parquet", scenario.schema, names, *rows)

    def _cell(self, name):
        """A value; NULL is rare in keys, whose rows nothing deletes."""
        return self._choose.choice(self._cells[name] if self._choose.random() < 0.3 else self._cells[name][:-1])

    def _replayed(self, file):
        """Have `replay` apply a file; what its changes met."""
        table, names = file.rows.table, [name for name in file.rows.schema.names if name != MARKER_COLUMN]
        changes = zip(*(table[name].to_pylist() for name in (MARKER_COLUMN, *names)), strict=True)
        self.rows, matches = replayed(self.rows, names, self.scenario.keys, list(changes))
        return matches
