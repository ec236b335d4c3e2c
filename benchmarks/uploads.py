"""How fast the endpoint takes files, beside copying the same bytes to the same disk."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from measure import interleaved, machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RESULTS = Path(__file__).parent / "results"
ZONE = "/Workspace/Mirror.MountedRelationalDatabase/Files/LandingZone/Orders"
MIB = 1 << 20
WRITERS = 8
ANSWERS = (200, 201, 202)


def upload(port: int, files: Sequence[Path]) -> None:
    """Create, append and flush each, on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    for file in files:
        size, name = file.stat().st_size, f"{ZONE}/{file.name}"
        asked(connection, "PUT", f"{name}?resource=file", b"")
        asked(connection, "PATCH", f"{name}?action=append&position=0", file.read_bytes())
        asked(connection, "PATCH", f"{name}?action=flush&position={size}", b"")
    connection.close()


def put(port: int, files: Sequence[Path]) -> None:
    """Put Blob for each, on one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    for file in files:
        asked(connection, "PUT", f"{ZONE}/{file.name}", file.read_bytes(), {"x-ms-blob-type": "BlockBlob"})
    connection.close()


def asked(
    connection: http.client.HTTPConnection, method: str, target: str, body: bytes, headers: dict[str, str] | None = None
) -> None:
    """One request that must succeed."""
    connection.request(method, target, body, headers or {})
    answer = connection.getresponse()
    answer.read()
    if answer.status not in ANSWERS:
        sys.exit(f"{method} {target}: {answer.status}")


def copy(target: Path, files: Sequence[Path], *, syncs: bool) -> None:
    """Copy each; with `syncs` each is on the disk before the next."""
    target.mkdir(exist_ok=True)
    for file in files:
        with file.open("rb") as source, (target / file.name).open("wb") as sink:
            shutil.copyfileobj(source, sink, MIB)
            if syncs:
                sink.flush()
                os.fsync(sink.fileno())


def work(what: str, where: str, source: Path) -> None:
    """One round of one work."""
    files = sorted(source.iterdir())
    shares = [files[number::WRITERS] for number in range(WRITERS)]
    with ThreadPoolExecutor(WRITERS) as pool:
        if what in {"upload", "put"}:
            transfer = upload if what == "upload" else put
            list(pool.map(lambda share: transfer(int(where), share), shares))
        else:
            list(pool.map(lambda share: copy(Path(where), share, syncs=what == "copy, synced"), shares))


@contextlib.contextmanager
def served(store: Path) -> Iterator[str]:
    """The http port of an endpoint in a process of its own."""
    command = [sys.executable, "-m", "mirror_engine.cli.main", "emulator"]
    start = [*command, "start", str(store), "--storage-only", "--detach", "--json"]
    started = subprocess.run(start, check=True, capture_output=True)  # noqa: S603 - ours
    try:
        yield str(urlsplit(json.loads(started.stdout)["http"]).port)
    finally:
        subprocess.run([*command, "stop", str(store)], check=True, capture_output=True)  # noqa: S603 - ours


def main() -> None:
    """Measure, print, and keep the figures."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("--rounds", type=int, default=5)
    given.add_argument("--files", type=int, default=64)
    given.add_argument("--mib", type=int, default=8)
    given.add_argument("work", nargs="*")
    given.add_argument("--results", type=Path, default=RESULTS)
    options = given.parse_args()
    if options.work:
        work(options.work[0], options.work[1], Path(options.work[2]))
        return
    with tempfile.TemporaryDirectory(prefix="mirror-engine-bench-") as folder:
        home = Path(folder)
        source = home / "source"
        source.mkdir()
        for number in range(1, options.files + 1):
            (source / f"{number:020}.parquet").write_bytes(os.urandom(options.mib * MIB))
        command = [sys.executable, __file__]
        with served(home / "store") as port:
            figures = interleaved(
                {
                    "upload": [*command, "upload", port, str(source)],
                    "put": [*command, "put", port, str(source)],
                    "copy": [*command, "copy", str(home / "copied"), str(source)],
                    "copy, synced": [*command, "copy, synced", str(home / "synced"), str(source)],
                },
                options.rounds,
            )
    seconds = {name: found.median_seconds for name, found in figures.items()}
    told = {
        "machine": machine(),
        "rounds": options.rounds,
        "files": options.files,
        "mib_each": options.mib,
        "seconds": {name: round(found, 3) for name, found in seconds.items()},
        "mib_a_second": {name: round(options.files * options.mib / found) for name, found in seconds.items()},
        "ratio_to_copy": {name: round(seconds[name] / seconds["copy"], 2) for name in ("upload", "put")},
        "ratio_to_copy_synced": {name: round(seconds[name] / seconds["copy, synced"], 2) for name in ("upload", "put")},
    }
    options.results.mkdir(exist_ok=True)
    (options.results / "uploads.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
