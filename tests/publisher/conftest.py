"""Runs of pytest within tests leave out the plugins that ours leave out: some load what cannot be loaded twice."""

from __future__ import annotations

from itertools import pairwise

import pytest


@pytest.fixture
def pytester(
    pytester: pytest.Pytester, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> pytest.Pytester:
    left_out = [name for flag, name in pairwise(pytestconfig.getini("addopts")) if flag == "-p"]
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(f"-p {name}" for name in left_out))
    return pytester
