"""A baseline file may hold anything."""

from __future__ import annotations

import pytest

from mirror_engine.errors import UsageError
from mirror_engine.publisher.baseline import Baseline


@pytest.mark.parametrize(
    "content",
    [b"", b"\xff", b"{}", b"[]", b'{"suppressed": [1]}', b'{"suppressed": [{}]}', b"[" * 100_000, b"7" * 5000],
)
def test_a_file_that_is_no_baseline_is_refused(tmp_path, content):
    (tmp_path / "b.json").write_bytes(content)
    with pytest.raises(UsageError, match="not a baseline"):
        Baseline.read(tmp_path / "b.json")
