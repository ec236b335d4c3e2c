"""A careful publisher, and one for each scenario that is careless in that alone."""

from __future__ import annotations

import json
import threading
import uuid

import pyarrow as pa
import pyarrow.parquet as pq

ARROW = {int: pa.int64(), str: pa.string()}
MARKER = {"__rowMarker__": pa.int32()}
CHUNK = 4


class Careful:
    """Keeps its position in the newest change file; lands under a temporary name; never writes a number twice."""

    def __init__(self, source, files, state):
        self.source, self.files, self.shared = source, files, state
        self.state = state.setdefault(source.name, {})
        self.folder = source.name

    @classmethod
    def publish(cls, source, files, state):
        cls(source, files, state).run()

    def run(self):
        if self.about("generation") not in {None, self.source.generation}:
            self.reset()
        number, position = self.newest()
        if not number:
            number, position = self.load(number)
        changes = self.source.changes(after=position)
        for start in range(0, len(changes), CHUNK):
            number += 1
            self.land_chunk(number, changes[start : start + CHUNK])

    def reset(self):
        self.files.delete(self.folder)
        self.state.clear()

    def newest(self):
        return self.about("number") or 0, self.about("position") or 0

    def about(self, name):
        """What the newest change file holds about itself; None without one."""
        newest = max((file for file in self.files.list(self.folder) if file[:20].isdigit()), default=None)
        if newest is None:
            return None
        content = self.files.read(f"{self.folder}/{newest}")
        return int(pq.read_schema(pa.BufferReader(content)).metadata[name.encode()])

    def load(self, number):
        metadata = json.dumps({"keyColumns": list(self.source.keys)}).encode()
        self.files.write(f"{self.folder}/_metadata.json", metadata)
        position, rows = self.read_all()
        self.land(number + 1, position, rows)
        return number + 1, position

    def read_all(self):
        position = self.source.position
        return position, list(self.source.rows())

    def columns(self):
        return dict(self.source.columns)

    def marked(self, change):
        if change.kind == "delete":
            return [(2, change.before)]
        if change.kind == "update" and change.before["id"] != change.after["id"]:
            return [(2, change.before), (4, change.after)]
        return [(4, change.after)]

    def land_chunk(self, number, changes):
        rows = [{**row, "__rowMarker__": marker} for change in changes for marker, row in self.marked(change)]
        self.land(number, changes[-1].position, rows, MARKER)

    def land(self, number, position, rows, further=None):
        types = {name: ARROW[kind] for name, kind in self.columns().items()} | (further or {})
        arrays = [pa.array([row.get(name) for row in rows], kind) for name, kind in types.items()]
        table = pa.table(dict(zip(types, arrays, strict=True)))
        buffer = pa.BufferOutputStream()
        about = {"number": number, "position": position, "generation": self.source.generation}
        pq.write_table(table.replace_schema_metadata({name: str(value) for name, value in about.items()}), buffer)
        self.upload(f"{self.folder}/{number:020d}.parquet", buffer.getvalue().to_pybytes())

    def upload(self, final, content):
        temporary = f"{self.folder}/_{uuid.uuid4().hex}.uploading"
        self.files.write(temporary, content)
        self.name(temporary, final)

    def name(self, temporary, final):
        self.files.rename(temporary, final)


class PositionAfterLoad(Careful):
    def read_all(self):
        rows = list(self.source.rows())
        return self.source.position, rows


class KeyChangeAsUpdate(Careful):
    def marked(self, change):
        return [(2, change.before)] if change.kind == "delete" else [(4, change.after)]


class GroupedByKind(Careful):
    def land_chunk(self, number, changes):
        super().land_chunk(number, sorted(changes, key=lambda change: (change.kind == "delete", change.position)))


class CutUploadIsNamed(Careful):
    def upload(self, final, content):
        temporary = f"{self.folder}/_{uuid.uuid4().hex}.uploading"
        try:
            self.files.write(temporary, content)
        finally:
            self.name(temporary, final)


class OverwritesAfterLostResponse(Careful):
    def newest(self):
        if "again" in self.state:
            return self.state["again"]
        return super().newest()

    def land(self, number, position, rows, further=None):
        before = Careful.newest(self)
        try:
            super().land(number, position, rows, further)
        except FileExistsError:
            raise
        except OSError:
            self.state["again"] = before
            raise
        self.state.pop("again", None)

    def name(self, temporary, final):
        (self.files.replace if "again" in self.state else self.files.rename)(temporary, final)


class TrustsItsState(Careful):
    """Holds a lock that ends with its process, and keeps its position itself."""

    lock = threading.Lock()

    def run(self):
        if not self.lock.acquire(blocking=False):
            raise BlockingIOError
        try:
            super().run()
        finally:
            self.lock.release()

    def newest(self):
        return self.state.get("newest") or super().newest()

    def land(self, number, position, rows, further=None):
        super().land(number, position, rows, further)
        self.state["newest"] = number, position

    def name(self, temporary, final):
        try:
            self.files.replace(temporary, final)
        except OSError:
            if not self.files.exists(final):
                raise


class LeavesOutWhatFails(Careful):
    left_out = 0

    def run(self):
        self.landed = 0
        super().run()

    def land_chunk(self, number, changes):
        try:
            super().land_chunk(number - self.left_out, changes)
        except (FileExistsError, TimeoutError):
            raise
        except OSError:
            if not self.landed:
                raise
            self.left_out = 1
        self.landed += 1


class LoadsAgain(Careful):
    def newest(self):
        number, position = super().newest()
        return self.load(number) if number and not self.state.get("loaded") else (number, position)

    def load(self, number):
        result = super().load(number)
        self.state["loaded"] = True
        return result


class KeepsItsColumns(Careful):
    def columns(self):
        return self.state.setdefault("columns", dict(self.source.columns))


class DeletesItsFiles(Careful):
    def reset(self):
        for name in self.files.list(self.folder):
            self.files.delete(f"{self.folder}/{name}")


class KeepsItsNumbers(Careful):
    """Knows the keys that it has landed."""

    def reset(self):
        number, _ = self.newest()
        position, rows = self.read_all()
        gone = self.state["keys"] - {row["id"] for row in rows}
        deletes = [{"id": key, "__rowMarker__": 2} for key in gone]
        self.land(number + 1, position, [*deletes, *({**row, "__rowMarker__": 4} for row in rows)], MARKER)

    def land(self, number, position, rows, further=None):
        super().land(number, position, rows, further)
        self.state["keys"] = self.state.get("keys", set()) | {row["id"] for row in rows}


class Overwrites(Careful):
    def newest(self):
        number, position = super().newest()
        return number, max(position, self.state.get("position", 0))

    def land(self, number, position, rows, further=None):
        super().land(number, position, rows, further)
        self.state["position"] = max(position, self.state.get("position", 0))

    def name(self, temporary, final):
        self.files.replace(temporary, final)


class SharesItsPosition(Careful):
    """Keeps one position for all its tables."""

    def newest(self):
        number, position = super().newest()
        return number, max(position, self.shared.get("position", 0)) if number else 0

    def land(self, number, position, rows, further=None):
        super().land(number, position, rows, further)
        self.shared["position"] = position


class TakesTheNextNumber(Careful):
    """Lands a file whose number is taken under the next one, with the rows that it has."""

    def newest(self):
        number, position = super().newest()
        return number, max(position, self.state.get("position", 0))

    def land(self, number, position, rows, further=None):
        try:
            super().land(number, position, rows, further)
        except FileExistsError:
            self.land(number + 1, position, rows, further)
        self.state["position"] = max(position, self.state.get("position", 0))


class RetriesLast(Careful):
    """Keeps a file that was refused, and lands it again after newer ones."""

    def run(self):
        super().run()
        for position, rows in self.state.pop("refused", []):
            super().land(super().newest()[0] + 1, position, rows, MARKER)

    def newest(self):
        number, position = super().newest()
        return number, max([position, *(refused for refused, _ in self.state.get("refused", []))])

    def land(self, number, position, rows, further=None):
        try:
            super().land(number, position, rows, further)
        except ConnectionRefusedError:
            self.state["refused"] = [(position, rows)]
            raise


class TrustsAnOldPosition(TrustsItsState):
    """As that, and without a lock: what it keeps may be an old backup."""

    def run(self):
        Careful.run(self)


# by scenario: who fails it, and by what problem
CARELESS = {
    "write during the initial load": (PositionAfterLoad, "1 row (id 0) is missing"),
    "key change": (KeyChangeAsUpdate, "under an old key"),
    "rapid changes to one key": (GroupedByKind, "missing"),
    "failed temporary upload": (CutUploadIsNamed, "[ME024]"),
    "lost rename response": (OverwritesAfterLostResponse, "in an older state"),
    "crash after publish": (TrustsItsState, "in an older state"),
    "second file fails": (LeavesOutWhatFails, "are missing"),
    "lost state": (LoadsAgain, "are there more than once"),
    "schema change": (KeepsItsColumns, "1 row (id 5) is wrong"),
    "one table is reset": (
        DeletesItsFiles,
        "Orders: 1 row (id 8) is missing; Orders: 1 row (id 5) is there though deleted",
    ),
    "stop and start with files already cleaned": (KeepsItsNumbers, "Orders is blocked"),
    "two publishers at once": (Overwrites, "in an older state"),
    "one table of a run fails": (SharesItsPosition, "Orders: 1 row (id 1) is in an older state"),
    "old upsert is sent again later": (TakesTheNextNumber, "in an older state"),
}
