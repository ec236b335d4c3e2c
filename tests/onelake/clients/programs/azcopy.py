"""azcopy with a service principal, on both hosts."""

from __future__ import annotations

import pytest
from places import BLOB, DFS, FOLDER, LANDING_ZONE, SECRETS, WORKSPACE, new_table, printed_by

PRINCIPAL = {
    "AZCOPY_AUTO_LOGIN_TYPE": "SPN",
    "AZCOPY_TENANT_ID": SECRETS["tenant_id"],
    "AZCOPY_SPA_APPLICATION_ID": SECRETS["client_id"],
    "AZCOPY_SPA_CLIENT_SECRET": SECRETS["client_secret"],
}


def azcopy(*words: object) -> str:
    return printed_by(*words, "--trusted-microsoft-suffixes=fabric.microsoft.com", **PRINCIPAL)


@pytest.mark.parametrize("host", [BLOB, DFS])
def test_copy_list_read_delete(tmp_path, host):
    table = new_table()
    at = f"{host}/{WORKSPACE}/{LANDING_ZONE}/{table}"
    (tmp_path / "a.csv").write_text("id\na\n")
    azcopy("copy", tmp_path / "a.csv", f"{at}/_a.csv")
    assert (FOLDER / table / "_a.csv").read_text() == "id\na\n"
    assert "_a.csv" in azcopy("list", at)
    azcopy("copy", f"{at}/_a.csv", tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_text() == "id\na\n"
    if host == BLOB:
        azcopy("copy", f"{at}/_a.csv", f"{at}/1.csv")
        assert (FOLDER / table / "1.csv").read_text() == "id\na\n"
    azcopy("remove", f"{at}/_a.csv")
    assert not (FOLDER / table / "_a.csv").exists()
