"""Which files a batch takes, and where it ends: at a bound, at a file of the other kind, or at a failure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from unittest.mock import Mock

import pytest

from mirror_engine.config import Config
from mirror_engine.engine.batch_reader import BatchReader
from mirror_engine.errors import ConcurrentModification, StorageUnavailable
from mirror_engine.landing_zone.diagnostics import RejectedFile, diagnose
from mirror_engine.landing_zone.listing import Entry
from mirror_engine.landing_zone.metadata import Metadata
from mirror_engine.landing_zone.names import TableName
from mirror_engine.landing_zone.schema import Column, TableSchema
from mirror_engine.tables.base import FileRows, ReadContext
from mirror_engine.tables.reading.request import LandedFolder

MEBIBYTE = 1 << 20
FOLDER = LandedFolder("zone", TableName("", "T"), Metadata())
AFTER = ReadContext(TableSchema((Column("id", "long"),)), is_empty=False)
FULL = StorageUnavailable("the scratch folder failed: No space left on device")


def read_of(file, **more):
    return FileRows(file, "", Mock(), {0: 1}, has_marker=False, byte_count=0, context=AFTER, **more)


@dataclass
class Backlog:
    """Files to be read, by their sizes in MiB; a size of 0 is a small file, whose rows are applied.

    Attributes:
        failures: what is raised for a file, by its number from 1.
        untrue: numbers of files whose footer fits the table, and whose rows do not.
        looks, verified: how often each file's footer was looked at, and how often it was copied and verified.
    """

    sizes: list[int]
    config: Config = field(default_factory=Config)

    def __post_init__(self):
        self.failures, self.untrue = {}, set()
        self.looks, self.verified, self.read = Counter(), Counter(), Counter()
        self.files = [Entry(f"{n}", size * MEBIBYTE, 0, f"{n}") for n, size in enumerate(self.sizes, 1)]
        self.batches = BatchReader(self.config, lambda _: None, lambda: self, lambda: Passthrough(self))
        self.context = ReadContext()

    def next(self):
        """The numbers of the next batch's files, and whether they are added unchanged; nothing of it is left then."""
        found = self.batches.read(FOLDER, tuple(self.files), self.context, None)
        del self.files[: len(found.files)]
        self.context = found.files[-1].context
        return [int(file.path) for file in found.files], bool(found.passthrough)

    def all(self):
        return [self.next() for _ in iter(lambda: bool(self.files), False)]

    def raise_for(self, file):
        if failure := self.failures.get(int(file.path)):
            raise failure

    def in_order(self, _, files, __):
        for file in files:
            self.raise_for(file)
            self.read[int(file.path)] += 1
            yield read_of(file)


@dataclass
class Passthrough:
    backlog: Backlog

    def why_not(self, request):
        if not request.file.size:
            return "it is small"
        self.backlog.looks[int(request.file.path)] += 1
        return ""

    def in_order(self, _, files, __, is_full):
        size = 0
        for count, file in enumerate(files):
            if is_full(count, size, file):
                return
            if not file.size:
                yield "it is small"
            self.backlog.raise_for(file)
            self.backlog.verified[int(file.path)] += 1
            if int(file.path) in self.backlog.untrue:
                yield "its footer is untrue"
            size += file.size
            yield read_of(file, passthrough=Path(file.path))


@pytest.mark.parametrize(("mebibytes", "in_batch"), [(1024, 1), (100, 2), (64, 4), (1, 256)])
def test_passthrough_batch_ends_at_max_batch_size(mebibytes, in_batch):
    backlog = Backlog([mebibytes] * 1000, Config(max_batch_size=256 * MEBIBYTE))
    assert backlog.next() == (list(range(1, in_batch + 1)), True)
    assert sum(backlog.verified.values()) == in_batch, "what is not committed is not copied"


def test_passthrough_batch_ends_at_max_batch_files():
    assert Backlog([1] * 5, Config(max_batch_files=2)).all() == [([1, 2], True), ([3, 4], True), ([5], True)]


@pytest.mark.parametrize("failure", [FULL, ConcurrentModification("T/3: changed since it was listed")])
@pytest.mark.parametrize("size", [5, 0], ids=["passthrough", "rows"])
def test_failure_commits_files_before_it_and_recurs_next_batch(failure, size):
    backlog = Backlog([size] * 4)
    backlog.failures[3] = failure
    assert backlog.next() == ([1, 2], bool(size))
    with pytest.raises(type(failure)) as raised:
        backlog.next()
    assert raised.value is failure
    backlog.failures.clear()
    assert backlog.next() == ([3, 4], bool(size))


def test_scratch_files_are_closed_when_an_unknown_error_ends_the_batch():
    backlog, closed = Backlog([0] * 3), Mock()
    backlog.failures[3] = ValueError()
    read = backlog.in_order
    backlog.in_order = lambda *given: (replace(file, rows=closed) for file in read(*given))
    with pytest.raises(ValueError, match=r"^$"):
        backlog.next()
    assert closed.close.call_count == 2


def test_rejected_file_ends_the_batch_before_it():
    backlog = Backlog([5, 5])
    backlog.failures[2] = RejectedFile(diagnose("ME024", "T/2", reason="it is damaged", help=""))
    found = backlog.batches.read(FOLDER, tuple(backlog.files), backlog.context, None)
    assert ([file.path for file in found.files], found.rejected) == (["1"], backlog.failures[2])


def test_mixed_backlog_verifies_each_large_file_once():
    backlog = Backlog([0, 5, 0, 5, 5, 0, 0])
    kinds = [([1], False), ([2], True), ([3], False), ([4, 5], True), ([6, 7], False)]
    assert backlog.all() == kinds
    assert backlog.verified == {2: 1, 4: 1, 5: 1}
    assert backlog.looks == {2: 1, 4: 1}, "at the end of a batch of rows"
    assert backlog.read == {1: 1, 3: 1, 6: 1, 7: 1}


def test_full_batch_looks_at_no_further_file():
    backlog = Backlog([0, 0, 5], Config(max_batch_files=2))
    assert backlog.next() == ([1, 2], False)
    assert not backlog.looks


def test_file_that_is_not_eligible_after_all_is_verified_once():
    backlog = Backlog([5, 5, 0])
    backlog.untrue.add(2)
    backlog.context = AFTER
    assert backlog.all() == [([1], True), ([2, 3], False)]
    assert backlog.verified == {1: 1, 2: 1}
