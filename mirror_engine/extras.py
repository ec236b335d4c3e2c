"""Extras of this package: the command that installs one. No index has the package: it names where this one is from."""

from __future__ import annotations

import json
import re
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

NAME = "mirror-engine"
_OF_EXTRA = re.compile(r"(.+?) ?; ?.*extra == ['\"](.+?)['\"].*")


def install_command(*extras: str) -> str:
    """`pip install '/path/to/checkout[spark]'`; the extras' packages where what this one was installed from is gone."""
    names = ",".join(extras)
    try:
        found = distribution(NAME)
    except PackageNotFoundError:  # run from its sources
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
