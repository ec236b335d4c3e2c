"""What the names of a log's files say."""

from __future__ import annotations

import pytest

from mirror_engine.tables.log.log_names import (
    LogFile,
    checkpoint_names,
    checksum_name,
    commit_name,
    log_file,
    version_of,
)

SEVEN, ID = "00000000000000000007", "3a0d65cd-4056-49b8-937b-95f9e3ee90e5"


@pytest.mark.parametrize(
    ("name", "found"),
    [
        (f"{SEVEN}.json", LogFile(7, is_commit=True, parts=0)),
        (f"{SEVEN}.checkpoint.parquet", LogFile(7, is_commit=False, parts=0)),
        (f"{SEVEN}.checkpoint.{ID}.parquet", LogFile(7, is_commit=False, parts=0)),
        (f"{SEVEN}.checkpoint.{ID}.json", LogFile(7, is_commit=False, parts=0)),
        (f"{SEVEN}.checkpoint.0000000002.0000000003.parquet", LogFile(7, is_commit=False, parts=3)),
        (f"{SEVEN}.checkpoint.0000000002.0000000003.json", None),
        (f"{SEVEN}.00000000000000000009.compacted.json", None),
        (f"{SEVEN}.crc", None),
        (f".{SEVEN}.json.crc", None),
        (f"{SEVEN}.json.tmp", None),
        ("7.json", None),
        ("_last_checkpoint", None),
    ],
)
def test_name_of_a_commit_or_checkpoint_says_its_version(name, found):
    assert log_file(name) == found


@pytest.mark.parametrize(
    ("name", "version"),
    [
        (commit_name(7), 7),
        (checksum_name(7), 7),
        *((name, 7) for name in (*checkpoint_names(7), *checkpoint_names(7, 2))),
        (f".{commit_name(7)}.crc", 7),
        (f".{checkpoint_names(7)[0]}.crc", 7),
        (f"{SEVEN}.00000000000000000009.compacted.json", None),
        ("_last_checkpoint", None),
        (f"applied-{SEVEN}.json", None),
    ],
)
def test_version_of_a_file_is_that_of_its_commit(name, version):
    assert version_of(name) == version
