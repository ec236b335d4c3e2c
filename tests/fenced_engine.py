"""The command line with a lease that expires soon; small tables take every way: `fenced_engine.py run ROOT`."""

from __future__ import annotations

import sys

from marking import marking

from mirror_engine.cli.main import main
from mirror_engine.storage import lease

EXPIRE_SECONDS = 4.0

if __name__ == "__main__":
    lease.RENEW_SECONDS, lease.EXPIRE_SECONDS, lease.WATCH_SECONDS = EXPIRE_SECONDS / 3, EXPIRE_SECONDS, 0.1
    with marking():
        sys.exit(main())
