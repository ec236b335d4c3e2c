"""Extras of this package: the command that installs one. No index has the package: it names where this one is from."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

if TYPE_CHECKING:
    from importlib.metadata import Distribution

NAME = "mirror-engine"
_OF_EXTRA = re.compile(r"(.+?) ?; ?.*extra == ['\"](.+?)['\"].*")


def install_command(*extras: str) -> str:
    """`pip install '/path/to/checkout[spark]'`; the extras' packages where what this one was installed from is gone."""
    names = ",".join(extras)
    if (found := _installed()) is None:
        return f"pip install '.[{names}]'"
    origin = json.loads(found.read_text("direct_url.json") or "{}")
    url = urlsplit(origin.get("url", ""))
    place = Path(unquote(url.path))
    match origin:
        case {"dir_info": {**facts}} if place.is_dir():
            return f"pip install {'-e ' if facts.get('editable') else ''}'{place}[{names}]'"
        case {"vcs_info": {"vcs": vcs, "commit_id": commit}}:
            return f"pip install '{NAME}[{names}] @ {vcs}+{url.geturl()}@{commit}'"
        case {"archive_info": _} if url.scheme != "file" or place.is_file():
            return f"pip install '{NAME}[{names}] @ {url.geturl()}'"
    wanted = filter(None, map(_OF_EXTRA.fullmatch, found.requires or ()))
    return shlex.join(["pip", "install", *(match[1] for match in wanted if match[2] in extras)])


def _installed() -> Distribution | None:
    """This package's distribution; None where it is run from its sources."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415 - no start needs it

    try:
        return distribution(NAME)
    except PackageNotFoundError:
        return None
