"""Clients that emulator.md does not name: curl, and Arrow's own file system."""

from __future__ import annotations

import shutil
import subprocess

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.skipif(not shutil.which("curl"), reason="curl is missing")
def test_curl_creates_appends_what_it_announces_first_flushes_and_renames(served, table, landing_zone, tmp_path):
    url = f"https://onelake.dfs.fabric.microsoft.com/{served.connection.workspace}/{served.connection.item}/Files/LandingZone/{table}"
    size = 3 << 20
    (tmp_path / "large").write_bytes(b"x" * size)  # so large that curl sends `Expect: 100-continue`
    source = f"/{served.connection.workspace}/{served.connection.item}/Files/LandingZone/{table}/_a"
    for words in (
        ["-X", "PUT", "-d", "", f"{url}/_a?resource=file"],
        ["-X", "PATCH", "--data-binary", f"@{tmp_path / 'large'}", f"{url}/_a?action=append&position=0"],
        ["-X", "PATCH", "-d", "", f"{url}/_a?action=flush&position={size}"],
        ["-X", "PUT", "-d", "", "-H", f"x-ms-rename-source: {source}", f"{url}/a"],
    ):
        subprocess.run(["curl", "-sS", "--fail-with-body", *words], env=served.environment, check=True, timeout=60)
    assert (landing_zone / table / "a").stat().st_size == size
    assert not (landing_zone / table / "_a").exists()


def test_arrow_s_own_file_system_writes_reads_lists_moves_and_deletes(client, served, table):
    address = served.connection.http.removeprefix("http://")
    assert client("arrow_fs").round_trip(address, table) == {
        "content": "0123456789",
        "listed": [["a", "File", 10]],
        "moved": ["NotFound", "File"],
        "gone": "NotFound",
    }
