"""What a change data feed says of a batch, by `replay`, and what a reader finds in it."""

from __future__ import annotations

from collections import Counter

from mirror_engine.landing_zone.change import Change, RowMarker, comparable, replay, same_key


def net_changes(before, batch, names, keys):
    """Net changes of a batch to a table's rows (LZ-9.10): each kind and row, counted; and the rows after it.

    Args:
        before: the table's rows.
        batch: rows of one file: the marker, then the values.
        names: of the columns.
        keys: of the key columns.
    """
    rows = [dict(zip(names, values, strict=True)) for _, *values in batch]
    changes = [
        Change(RowMarker(marker), tuple(row[key] for key in keys), row)
        for (marker, *_), row in zip(batch, rows, strict=True)
    ]
    after, _ = replay(before, changes, keys)
    fed: Counter[tuple[str, frozenset[object]]] = Counter()
    by_key: dict[object, list[Change]] = {}
    for change in changes:
        by_key.setdefault(same_key(change.key), []).append(change)
    for key, own in by_key.items():
        old, new = (_rows_of(key, table, keys) for table in (before, after))
        setting = [change for change in own if change.marker != RowMarker.INSERT]
        if key is None or not setting:
            inserted = new - old
        elif any(change.marker == RowMarker.DELETE for change in own):
            inserted = new
            fed.update({("delete", row): count for row, count in old.items()})
        else:
            replaced = Counter({_row(setting[-1].row): old.total()})
            inserted = new - replaced
            fed.update({("update_preimage", row): count for row, count in old.items()})
            fed.update({("update_postimage", row): count for row, count in replaced.items() if count})
        fed.update({("insert", row): count for row, count in inserted.items()})
    return fed, after


def fed(table):
    """The feed as a reader found it, as Arrow: by version each kind and row, counted."""
    found: dict[int, Counter[tuple[str, frozenset[object]]]] = {}
    for row in table.to_pylist():
        version, kind, _ = (row.pop(f"_{name}") for name in ("commit_version", "change_type", "commit_timestamp"))
        found.setdefault(version, Counter())[kind, _row(row)] += 1
    return found


def _row(row):
    return frozenset((name, comparable(value)) for name, value in row.items() if value is not None)


def _rows_of(key, table, keys):
    return Counter(_row(row) for row in table if same_key(tuple(row[name] for name in keys)) == key)
