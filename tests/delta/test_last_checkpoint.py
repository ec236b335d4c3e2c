from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from mirror_engine.tables.log.kernel import count_actions

if TYPE_CHECKING:
    from pathlib import Path


def test_the_last_checkpoint_says_how_many_actions_it_holds_and_no_stale_checksum_lies_beside_it(
    tmp_path: Path,
) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    pq.write_table(pa.table({"add": [1, 2, 3, 4, 5]}), log / f"{50:020}.checkpoint.parquet")
    (log / "_last_checkpoint").write_text('{"version":50,"size":2}')
    (log / "._last_checkpoint.crc").write_bytes(b"crc")
    count_actions(tmp_path, 50)
    assert json.loads((log / "_last_checkpoint").read_text()) == {"version": 50, "size": 5}
    assert sorted(file.name for file in log.iterdir()) == [f"{50:020}.checkpoint.parquet", "_last_checkpoint"]
