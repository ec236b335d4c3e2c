"""Fixtures of the publisher's tests: a mirror to trace, and runs of pytest within a test."""

from __future__ import annotations

from itertools import pairwise

import pytest


@pytest.fixture
def pytester(pytester, pytestconfig, monkeypatch):
    """Without the plugins that this project leaves out: some of them cannot be loaded twice."""
    disabled = [name for flag, name in pairwise(pytestconfig.getini("addopts")) if flag == "-p"]
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(f"-p {name}" for name in disabled))
    return pytester
