"""Read a Delta table of `id` and `batch` again and again with deltalake until stdin ends.

    python reading_process.py FOLDER poll|hold|travel

`poll` reads the newest version every time, `hold` the one that it opened first, `travel` opens that one again by its
number. Each reading is a line: version and rows.
"""

from __future__ import annotations

import json
import select
import sys

import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

PAUSE_SECONDS = 0.15  # readers without a pause leave the engine no time on a small machine


def read_until_input_ends(folder, way):
    """Readings go to standard output."""
    first = table = DeltaTable(folder)
    while True:
        print(json.dumps([table.version(), rows(table)]), flush=True)
        ended, _, _ = select.select([sys.stdin], [], [], PAUSE_SECONDS)
        if ended:
            return
        if way == "poll":
            table = DeltaTable(folder)
        elif way == "travel":
            table = DeltaTable(folder, version=first.version())


def rows(table):
    """All rows as pairs."""
    found = pa.table(QueryBuilder().register("mirrored", table).execute("SELECT id, batch FROM mirrored"))
    return [[row["id"], row["batch"]] for row in found.to_pylist()]


if __name__ == "__main__":
    read_until_input_ends(*sys.argv[1:])
