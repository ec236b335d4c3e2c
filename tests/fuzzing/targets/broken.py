"""Targets that are broken on purpose: what fuzzing must find, else it finds nothing."""

from __future__ import annotations

import os
import signal

from fuzzing.bytes_mutations import mutated_bytes
from fuzzing.target import Target

SEED = b"good"
HOARDED_BYTES = 64 << 20


def _raises(content: bytes) -> None:
    if content != SEED:
        raise LookupError


def _crashes(content: bytes) -> None:
    if content != SEED:
        os.kill(os.getpid(), signal.SIGSEGV)


def _hoards(content: bytes) -> None:
    if content != SEED:
        bytes(b"\1" * HOARDED_BYTES)


TARGETS = {
    name: Target(name, lambda: [SEED], run, mutated_bytes, most_bytes=HOARDED_BYTES // 2)
    for name, run in (("raises", _raises), ("crashes", _crashes), ("hoards", _hoards))
}
