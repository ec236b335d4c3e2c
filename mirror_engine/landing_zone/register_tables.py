"""The register on a table's life, and on what only this program says: ME065 and above (chapters 7 to 10)."""

from __future__ import annotations

from mirror_engine.landing_zone.register_line import ERROR as E
from mirror_engine.landing_zone.register_line import INFO as I
from mirror_engine.landing_zone.register_line import WARNING as W
from mirror_engine.landing_zone.register_line import entry

ENTRIES = (
    entry("ME065", I, ("LZ-7.2",), "folder gone, table dropped", ""),
    entry(
        "ME066",
        I,
        ("LZ-7.3",),
        "new folder, table rebuilt from {count:file}",
        "land the full load again, if the folder does not hold it",
    ),
    entry(
        "ME067",
        W,
        ("LZ-7.1",),
        "metadata without data, Failed on {date}",
        "land a change file; one without rows will do",
    ),
    entry(
        "ME068",
        E,
        ("LZ-7.1",),
        "metadata without data, stuck in Snapshotting for {time}",
        "land a change file, or delete the folder",
    ),
    entry(
        "ME069",
        W,
        ("LZ-7.7",),
        "restart loses {count:row}, files are gone",
        "recreate single tables instead of stopping and starting all",
    ),
    entry(
        "ME070",
        W,
        ("LZ-7.2",),
        "zone cannot be listed, nothing dropped",
        "check that the path is there and may be read",
    ),
    entry(
        "ME071", W, ("LZ-3.10",), "grew under its final name", "write to a name that begins with `_`, then rename it"
    ),
    entry("ME072", W, ("LZ-10",), "{operation} failed, next try {time}", ""),
    entry(
        "ME073",
        I,
        ("LZ-8.4",),
        "newest applied file is gone, next is {next}",
        "leave the newest file where it is: it tells the next number",
    ),
    # Beyond the protocol's own register: what a local engine meets and the service does not.
    entry("ME074", W, ("LZ-1.9",), "symbolic link or special file, not followed", "put a regular file or folder there"),
    entry("ME075", E, ("LZ-10",), "{reason}, more than the limit of {limit}", "split it, or raise {option}"),
    entry("ME076", I, ("LZ-7.3",), "this ROOT was copied, moved or restored: folder identities learned anew", ""),
    # Only `validate` says these: the service applies such files without a word.
    entry(
        "ME077",
        W,
        ("LZ-4.1", "LZ-4.7"),
        "updates that met no row, inserted: {count}",
        "insert a row first; change a key by 2 with the old key, then 0 with the new",
    ),
    entry(
        "ME078",
        W,
        ("LZ-4.1", "LZ-4.7"),
        "deletes that met no row: {count}",
        "delete by exactly the key that was inserted",
    ),
    entry("ME079", W, ("LZ-3.5",), "another order of {count:file} of one time makes other rows", "number the files"),
    entry(
        "ME080",
        W,
        ("LZ-4.2",),
        "changed by someone else at version {version}",
        "find out who it was; delete the folder and land its full load, or leave it so",
    ),
    entry("ME081", E, ("LZ-4.18",), "Delta table damaged: {fault}", "{remedy}"),
    entry("ME082", I, ("LZ-1.6", "LZ-1.7"), "name begins with `{first}`: skipped", "rename it if it is to be read"),
)
