"""Publishers: what they land, how they do it, and what they do wrong and put right again."""

from __future__ import annotations

import functools
import io
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq

from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.landing_zone.names import METADATA_FILE, TableName

KINDS = {
    "id": ("Int64", pa.int64()),
    "name": ("String", pa.string()),
    "n": ("Int32", pa.int32()),
    "x": ("Double", pa.float64()),
}
NAMES = ["a", "b", "", None]
CONTENTS = 200  # of a table with the same columns
LEAVES = ["day=1", "day=2", "day=3"]


class Publisher:
    """Publishes one table folder: all that it does is a list of acts, drawn one after the other.

    Attributes:
        is_quiet: whether it lands nothing new any more.
        last: the highest number by Hive folder, `""` without one.
        gaps, bad: files that are still to land, and those that may be rejected, each as Hive folder and number.
    """

    def __init__(self, world, folder, chance):
        self.world, self.folder, self.chance = world, folder, chance
        self.is_text = chance.random() < 0.4
        self.keys = chance.choice([["id"], ["id"], ["id", "name"], []])
        self.leaves = LEAVES if chance.random() < 0.25 else [""]
        self.is_quiet = False
        self._begin()

    def _begin(self):
        self.last, self.gaps, self.bad = dict.fromkeys(self.leaves, 0), [], set()
        self.columns, self.partial, self.landed = ["id", "name"], None, []

    @property
    def table(self):
        """The folder of its Delta table."""
        return TableName.from_folder(self.folder).delta_folder(self.world.config.delta_default_schema)

    @property
    def path(self):
        return f"{ZONE}/{self.folder}"

    def live(self):
        """Publish until the world is to be quiet; then put right what is wrong."""
        hub, chance = self.world.hub, self.chance
        hub.sleep(chance.choice([0.0, 0.5, 20.0]))
        self._describe()
        acts = {name: weight for name, (weight, _) in ACTS.items() if name not in self.world.unwanted_acts}
        while self.world.is_landing:
            act = chance.choices([*acts], [*acts.values()])[0]
            if self.table in self.world.to_recreate:
                self.world.to_recreate.discard(self.table)
                act = "drop"
            self.world.reached[f"publisher: {act}"] += 1
            ACTS[act][1](self)
            hub.sleep(chance.choice([0.0, 0.05, 0.05, 1.0, 8.0]))
        hub.wait(lambda: self.world.is_ending)
        self._settle()
        self.is_quiet = True

    def _settle(self):
        """Leave a folder in which all can be applied, or none."""
        if self.chance.random() < 0.1 and "drop" not in self.world.unwanted_acts:
            self._drop()
            return
        self._describe()
        self._finish()
        self._repair()
        self._fill()
        if self.chance.random() < 0.1:
            self._land_bad()  # and nobody repairs it

    # acts

    def _land(self):
        self._put(self._next(), self._content())

    def _land_many(self):
        for _ in range(self.chance.randint(2, 4)):
            self._land()

    def _land_again(self):
        """The bytes of an earlier file under a new number."""
        file = self._next()
        earlier = [content for leaf, content in self.landed if leaf == file[0]]
        self._put(file, self.chance.choice(earlier) if earlier else self._content())

    def _skip(self):
        self.gaps.append(self._next())
        self._land()

    def _fill(self):
        gaps, self.gaps = self.gaps, []
        for file in self.chance.sample(gaps, len(gaps)):
            self._put(file, self._content())
            self.world.reached["gap filled"] += 1

    def _land_bad(self):
        file = self._next()
        self.bad.add(file)
        content = self._bad_content()
        self._do(f"put {file}, bad", lambda: self.world.disk.put(self._path(file), content))

    def _repair(self):
        for file in sorted(self.bad):
            self._replace(file)

    def _replace(self, file):
        self.bad.discard(file)
        self._do(f"remove {file}", lambda: self.world.disk.remove(self._path(file)))
        self._put(file, self._content())
        self.world.reached["rejected file replaced"] += 1

    def _overwrite(self):
        """A file is written again in place; where it was applied already, nothing comes of it."""
        file = self._some()
        if file and self.world.disk.find(self._path(file)):
            content = self._content()
            self._do("overwrite", lambda: self.world.disk.write_in_place(self._path(file), content))
            self.bad.add(file)  # it may have been read in part

    def _replace_some(self):
        """A number lands once more, as a new file."""
        if file := self._some():
            self._put(file, self._content())

    def _write_in_parts(self):
        """A file grows under its own name, and may stay half for a while."""
        self._finish()
        file, content = self._next(), self._content()
        sizes = (0,) if self.world.is_store else (0, self.chance.randrange(len(content)))
        for size in sizes:
            part = content[:size]
            self._do("write a part", lambda part=part: self.world.disk.write_in_place(self._path(file), part))
        self.partial = file, content
        if self.chance.random() < 0.6:
            self._finish()

    def _finish(self):
        if self.partial:
            (file, content), self.partial = self.partial, None
            self._do("write the rest", lambda: self.world.disk.write_in_place(self._path(file), content))
            if self.world.is_store:  # it is a new file there
                return
            self.bad.add(file)  # it may have been read before, and rejected
            if self.chance.random() < 0.3:
                self._replace(file)

    def _add_column(self):
        more = [name for name in KINDS if name not in self.columns]
        if more:
            self.columns.append(self.chance.choice(more))

    def _drop(self):
        self.world.notes_drop(self.folder)
        for path in sorted(self.world.disk.below(self.path), reverse=True):  # one by one, as `rm -r` does
            self._do("drop a file", lambda path=path: self.world.disk.remove(f"{self.path}/{path}"))
        self._do("drop", lambda: self.world.disk.remove(self.path))
        self._begin()

    def _recreate(self):
        self._drop()
        if self.chance.random() < 0.5:
            self.world.hub.sleep(self.chance.choice([0.0, 3.0, 30.0]))
        self._describe()
        self._land()

    def _rekey(self):
        """Other keys are refused for a table that has rows; they are put right later."""
        keys, self.keys = self.keys, ["n"]
        self._describe()
        self.keys = keys
        landed = {(leaf, number) for leaf, last in self.last.items() for number in range(1, last + 1)}
        self.bad |= landed - {*self.gaps}  # any may have been rejected meanwhile
        self.world.hub.sleep(self.chance.choice([0.5, 20.0]))
        self._describe()

    def _rest(self):
        self.world.hub.sleep(self.chance.choice([10.0, 60.0]))

    # how

    def _next(self):
        leaf = self.chance.choice(self.leaves)
        self.last[leaf] += 1
        return leaf, self.last[leaf]

    def _some(self):
        """A number that landed; None where there is none."""
        leaf = self.chance.choice(self.leaves)
        file = leaf, self.chance.randint(max(self.last[leaf] - 3, 1), max(self.last[leaf], 1))
        return file if self.last[leaf] and file not in self.bad | {*self.gaps} else None

    def _do(self, words, work):
        self.world.hub.step(f"{words} {self.folder}")
        work()

    def _put(self, file, content):
        self.landed.append((file[0], content))
        self._do(f"put {file}", lambda: self.world.disk.put(self._path(file), content))

    def _path(self, file):
        leaf, number = file
        name = f"{number:020}.{'csv' if self.is_text else 'parquet'}"
        return f"{self.path}/{leaf}/{name}" if leaf else f"{self.path}/{name}"

    def _describe(self):
        metadata = {"keyColumns": self.keys}
        if self.leaves != [""]:
            metadata["isPartitionEnabled"] = True
        if self.is_text:
            columns = [{"Name": name, "DataType": KINDS[name][0], "IsNullable": True} for name in KINDS]
            metadata |= {"FileFormat": "CSV", "SchemaDefinition": {"Columns": columns}}
        content = json.dumps(metadata).encode()
        self._do("describe", lambda: self.world.disk.put(f"{self.path}/{METADATA_FILE}", content))

    def _content(self):
        return drawn(self.is_text, tuple(self.columns), tuple(self.keys), self.chance.randrange(CONTENTS))

    def _bad_content(self):
        bad = self.chance.choice(["marker", "empty"] if self.world.is_store else ["marker", "half", "empty", "key"])
        if bad == "empty":
            return b""
        if bad == "half":
            content = self._content()
            return content[: len(content) // 2] + (b'"' if self.is_text else b"")
        if bad == "key" and self.keys:
            return encoded(self.is_text, ("name",), ((0, "a"),))
        return encoded(self.is_text, tuple(self.columns), ((3, 1, *(None for _ in self.columns[1:])),))


ACTS = {
    "land": (24, Publisher._land),
    "land many": (8, Publisher._land_many),
    "land again": (2, Publisher._land_again),
    "skip": (3, Publisher._skip),
    "fill": (4, Publisher._fill),
    "land bad": (2, Publisher._land_bad),
    "repair": (4, Publisher._repair),
    "overwrite": (3, Publisher._overwrite),
    "replace": (3, Publisher._replace_some),
    "write in parts": (3, Publisher._write_in_parts),
    "finish": (3, Publisher._finish),
    "add column": (1, Publisher._add_column),
    "drop": (1, Publisher._recreate),
    "rekey": (1, Publisher._rekey),
    "rest": (2, Publisher._rest),
}


@functools.lru_cache(100_000)
def drawn(is_text, columns, keys, number):
    """A change file, one of few: the same ones are parsed only once."""
    chance = random.Random(number)
    markers, names = [0, 1, 2, 4, 4] if keys else [0], ["a", "b"] if "name" in keys else NAMES

    def value(name):
        return chance.choice(names) if name == "name" else chance.choice([0, 1, None])

    rows = [
        (chance.choice(markers), chance.randrange(6), *map(value, columns[1:])) for _ in range(chance.randint(1, 3))
    ]
    return encoded(is_text, columns, tuple(rows))


def encoded(is_text, columns, rows):
    """A change file; rows begin with their marker."""
    if is_text:
        names = [*columns, "__rowMarker__"]
        lines = [names, *([*map(_field, values), str(marker)] for marker, *values in rows)]
        return "".join(",".join(line) + "\r\n" for line in lines).encode()
    cells = list(zip(*rows, strict=True))
    arrays = [pa.array(cells[at + 1], KINDS[name][1]) for at, name in enumerate(columns)]
    table = pa.table([*arrays, pa.array(cells[0], pa.int32())], names=[*columns, "__rowMarker__"])
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="none", use_dictionary=False, write_statistics=False)
    return buffer.getvalue()


def _field(value):
    return "" if value is None else f'"{value}"' if isinstance(value, str) else str(value)
