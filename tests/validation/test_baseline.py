"""A baseline is read from a file that anybody may have written."""

from __future__ import annotations

import pytest

from mirror_engine.errors import UsageError
from mirror_engine.publisher.baseline import Baseline


@pytest.mark.parametrize(
    "content", [b"", b"\xff", b"{}", b"[]", b'{"known": [1]}', b'{"known": [{}]}', b"[" * 100_000, b"7" * 5000]
)
def test_what_is_no_baseline_is_told_in_plain_words(tmp_path, content):
    (tmp_path / "b.json").write_bytes(content)
    with pytest.raises(UsageError, match="is no baseline"):
        Baseline.read(tmp_path / "b.json")
