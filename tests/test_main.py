"""The package as a program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import mirror_engine

PROBE = """
import importlib.util, runpy, sys
sys.argv[:] = [sys.argv[1], "--help"]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
except SystemExit as ended:
    print(ended.code, importlib.util.find_spec("landing_zone"))
"""


@pytest.mark.slow
def test_run_by_its_path_it_takes_no_folder_of_its_own_for_a_module():
    program = Path(mirror_engine.__file__).parent / "__main__.py"
    done = subprocess.run([sys.executable, "-c", PROBE, program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 None"
