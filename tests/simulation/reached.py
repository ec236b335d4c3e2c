"""What the worlds of a night must reach: a simulation that only passes may be too simple.

Each is a name by which something counts itself. 400 seeds reach nearly all of them.
"""

from __future__ import annotations

NIGHT = 5_000  # seeds from which on all must be reached

# What a promise is about, in words for docs/promises.md
STATES = {
    "engine killed": "the engine is killed at a call, and started again",
    "commits lost in a power cut": "a power cut takes commits that were not durable",
    "ledger lost": "the ledger is lost",
    "ledger older": "the ledger is older than the tables",
    "ledger lost while a number is missing": "the ledger is lost while a number is missing",
    "ledger discarded: another engine had the lease": "another engine takes over, and the first ledger is invalid",
    "lease lost between check and commit": "the lease is lost between its last check and the commit",
    "lease lost between check and move": "the lease is lost between its last check and a move",
    "late commit in a table made anew": "a commit arrives after its table was dropped and recreated",
    "late commit taken back by its own engine": "the engine that made such a commit takes it back",
    "table made late dropped by the next start": "the next start drops a table that was created too late",
    "drop while a batch is in progress": "a folder is dropped while its batch is in progress",
    "drop": "a Delta table is dropped",
    "rejected file replaced": "a rejected file is replaced",
    "gap filled": "a missing number lands",
    "content applied again": "content lands again under another number",
    "a file took another one's place at the last moment": "a file is replaced just when it is archived",
    "archived file deleted": "an archived file expires",
    "checkpoint": "a checkpoint is written",
    "log clean-up": "the engine cleans up a log",
    "foreign log clean-up": "another program cleans up a log",
    "record said again": "a record is committed again",
    "segment written": "a segment is written",
    "foreign rows": "another program changes rows",
    "foreign compaction": "another program compacts a table",
    "commit beside another commit": "a compaction is committed between a batch's snapshot and its commit",
    "table maintained": "a table is maintained",
    "maintenance yields to a change": "maintenance stops for a change",
    "refused more than a thousand times": "a thousand reads in a row are refused",
    "halted in the end": "a table stays halted, and all others catch up",
    "commit by arrow": "a batch is committed by `arrow` to real Delta tables",
    "caught up in the end": "all tables catch up in the end",
}
FAULTS = ("refused", "answer lost", "late", "crash before", "crash after")
CALLS = (  # those that are made often enough to meet each fault; the others meet some of them
    *("list", "stat", "open", "read", "create", "write", "move", "copy"),
    *("snapshot", "latest_external_change", "folder_identity", "commit", "sync", "lease"),
)
OF_THE_WRITER = (  # its calls that are rarer, with the two faults after which it goes on
    *("make", "drop", "take_back", "write_segment", "applied_since", "make_durable", "log_stamp", "tables"),
)
OF_THE_LEDGER = ("refused: ledger", "crash before: ledger", "crash after: ledger")
CODES = (
    *("ME009", "ME017", "ME018", "ME019", "ME023", "ME024", "ME025", "ME026", "ME027", "ME037", "ME039", "ME041"),
    *("ME043", "ME061", "ME064", "ME065", "ME066", "ME067", "ME070", "ME071", "ME080"),
)
OF_CALLS = tuple(f"{fault}: {call}" for fault in FAULTS for call in CALLS)
OF_CALLS += tuple(f"{fault}: {call}" for fault in FAULTS[:2] for call in OF_THE_WRITER)
MUST = (*STATES, *OF_CALLS, *OF_THE_LEDGER, "pause: commit", "pause: lease", "pause: move", *CODES)


def table(reached):
    """The states as rows of Markdown, for docs/promises.md."""
    return [f"| {words} | {reached[name]:,} |" for name, words in STATES.items()]


def missed(reached):
    """What was not reached."""
    return [name for name in MUST if not reached[name]]
