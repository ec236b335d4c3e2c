"""The sizes of the works: in full, or just large enough to show that they run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """Rows, files and seconds of every work; in full by default."""

    load_rows: int = 5_000_000
    load_files: int = 5
    merge_changes: int = 100_000
    tiny_rows: int = 1_000
    tiny_changes: int = 3
    backlog_files: int = 1_000
    backlog_rows: int = 100
    backlog_keys: int = 10_000
    backlog_sample: int = 20
    collapse_files: int = 50
    collapse_rows: int = 100_000
    collapse_keys: int = 1_000_000
    arrival_seconds: int = 30
    arrival_tables: tuple[int, ...] = (1, 10, 50)
    arrival_warm_up_files: int = 10
    idle_tables: int = 1_000
    age_files: tuple[int, ...] = (10, 1_000, 100_000)
    age_partitions: tuple[int, ...] = (10, 1_000)
    age_commits: tuple[int, ...] = (10, 10_000)
    age_times: int = 3  # commits and idle cycles a round
    store_files: int = 200
    store_tables: int = 1_000
    tiny_warm_ups: int = 20
    merge_warm_ups: int = 5
    warm_ups: int = 2

    def __post_init__(self) -> None:
        assert self.load_rows * 4 // 100 > self.merge_changes, "the newest 4 % must hold the keys"


FULL = Sizes()
SMALL = Sizes(
    load_rows=5_000,
    load_files=2,
    merge_changes=100,
    tiny_rows=100,
    backlog_files=8,
    backlog_rows=10,
    backlog_keys=40,
    backlog_sample=2,
    collapse_files=4,
    collapse_rows=500,
    collapse_keys=400,
    arrival_seconds=3,
    arrival_tables=(1, 2),
    arrival_warm_up_files=1,
    idle_tables=10,
    age_files=(2, 6),
    age_partitions=(2,),
    age_commits=(2,),
    age_times=1,
    store_files=2,
    store_tables=2,
    tiny_warm_ups=0,
    merge_warm_ups=0,
    warm_ups=0,
)
