"""Baseline files of `validate`."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from fuzzing.json_mutations import mutated_json
from fuzzing.target import Target
from quick_folder import quick_folder

from mirror_engine.errors import UsageError
from mirror_engine.publisher.baseline import Baseline

SEED = b'{"format": 1, "suppressed": [{"landing_zone": "shop", "code": "ME019", "path": "Orders", "column": null}]}'


def run(content: bytes) -> None:
    """A baseline, or a message that it is none."""
    with quick_folder() as folder:
        path = Path(folder) / "baseline.json"
        path.write_bytes(content)
        with suppress(UsageError):
            Baseline.read(path)


TARGET = Target("baseline", lambda: [SEED], run, mutated_json)
