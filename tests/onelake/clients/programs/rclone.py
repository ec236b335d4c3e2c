"""rclone's backend azureblob, whose remote is made of variables alone."""

from __future__ import annotations

from functools import partial

from places import BLOB, FOLDER, LANDING_ZONE, WORKSPACE, new_table, printed_by

REMOTE = {"TYPE": "azureblob", "ENV_AUTH": "true", "ACCOUNT": "onelake", "ENDPOINT": BLOB, "NO_CHECK_CONTAINER": "true"}
rclone = partial(printed_by, **{f"RCLONE_CONFIG_ONELAKE_{name}": value for name, value in REMOTE.items()})


def test_copy_list_read_move_sync_delete(tmp_path):
    table = new_table()
    at = f"onelake:{WORKSPACE}/{LANDING_ZONE}/{table}"
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text(f"id\n{name}\n")
    rclone("copyto", tmp_path / "a.csv", f"{at}/_a.csv")
    assert (FOLDER / table / "_a.csv").read_text() == "id\na\n"
    rclone("moveto", f"{at}/_a.csv", f"{at}/1.csv")
    assert rclone("lsf", at) == "1.csv\n"
    assert rclone("cat", f"{at}/1.csv") == "id\na\n"
    rclone("sync", tmp_path, at)
    assert rclone("lsf", at) == "a.csv\nb.csv\n"
    rclone("deletefile", f"{at}/a.csv")
    assert [path.name for path in (FOLDER / table).iterdir()] == ["b.csv"]
