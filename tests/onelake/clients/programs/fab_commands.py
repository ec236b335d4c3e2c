"""The Fabric CLI as its users call it: a mirrored database by `fab`, from its creation to its deletion."""

from __future__ import annotations

import os
import subprocess
import sys

from places import SECRETS

LOGIN = {
    f"FAB_{name}": SECRETS[name.lower().removeprefix("spn_")]
    for name in ("TENANT_ID", "SPN_CLIENT_ID", "SPN_CLIENT_SECRET")
}
FAB = [sys.executable, "-c", "import sys; from fabric_cli.main import main; sys.exit(main())"]
PLACE = f"{os.environ['TEST_WORKSPACE']}.Workspace"
ITEM = f"{PLACE}/by-fab.MirroredDatabase"


def fab(*commands):
    """What commands print that run one after the other in one process; its exit code is that of the last."""
    words = [word for command in commands for word in ("-c", command)]
    done = subprocess.run(
        [*FAB, *words], env=os.environ | LOGIN, capture_output=True, text=True, timeout=190, check=False
    )
    printed = f"\n{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, printed
    assert "\nx [" not in printed, printed  # an error
    return done.stdout


def test_a_mirrored_database_s_life(tmp_path):
    copy = [f"export {ITEM} -o {tmp_path} -f", f"import {ITEM} -i {tmp_path}/by-fab.MirroredDatabase -f"]
    fab(
        "config set encryption_fallback_enabled true",  # tokens in a file, as this home has no keyring
        f"mkdir {ITEM}",
        *copy * 2,  # two of these calls are long-running operations
    )
    printed = fab(f"ls {PLACE}", f"start {ITEM} -f", f"ls {ITEM}/Files", f"set {ITEM} -q description -i changed -f")
    assert {"by-fab.MirroredDatabase", "by-fab.SQLEndpoint", "LandingZone"} < set(map(str.strip, printed.splitlines()))
    printed = fab(f"get {ITEM} -q description", f"get {ITEM} -q status -f", f"stop {ITEM} -f", f"rm {ITEM} -f")
    assert "changed" in printed
    assert "Running" in printed
    assert "false" in fab(f"exists {ITEM}")
