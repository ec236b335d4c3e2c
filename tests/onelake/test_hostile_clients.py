"""Fifty clients of each hostile kind at once: the emulator stays small, and answers others."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from raw_http import connected, exchange, request, status_of

from mirror_engine.onelake.connection import StateFolder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read from /proc"),
]

CLIENTS = 50
SECONDS = 1.5  # of each kind: 50 clients saturate a core
ALL_SECONDS = 10.0  # of all kinds at once
PROCESSES = 4  # that attack
MAX_NICE = 19
MAX_MIB, MAX_SECONDS = 1024, 60
ZONE = "Workspace/Mirror.MountedRelationalDatabase/Files/LandingZone"
BLOB = "onelake.blob.fabric.microsoft.com"
MIB = 1 << 20


def put(target, length, host=BLOB):
    return f"PUT /{target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n".encode()


def document(content, target=f"{ZONE}/T/x?comp=blocklist"):
    return put(target, len(content)) + content


def json_of(content):
    target = "v1/workspaces/w/mirroredDatabases"
    return put(target, len(content), "api.fabric.microsoft.com").replace(b"PUT", b"POST") + content


CHUNKED = f"PUT /{ZONE}/T/y HTTP/1.1\r\nHost: {BLOB}\r\nx-ms-blob-type: BlockBlob\r\nTransfer-Encoding: chunked\r\n\r\n"
HEAD = b"GET / HTTP/1.1\r\nHost: localhost\r\n"
FULL = 4 * MIB
KINDS = {  # what a client sends first, and then again and again
    "many trailers": lambda: (CHUNKED.encode() + b"0\r\n", b"a:b\r\n" * 10_000),
    "trailers of a GET": lambda: (CHUNKED.replace("PUT", "GET").encode() + b"0\r\n", b"a:b\r\n" * 10_000),
    "long trailers": lambda: (CHUNKED.encode() + b"0\r\n", b"x: " + b"a" * 60_000 + b"\r\n"),
    "an endless trailer": lambda: (CHUNKED.encode() + b"0\r\nx: ", b"a" * 60_000),
    "an endless chunk header": lambda: (CHUNKED.encode() + b"1;", b"a" * 60_000),
    "many headers": lambda: (HEAD, b"a:b\r\n" * 10_000),
    "pipelined requests": lambda: (b"", (HEAD + b"\r\n") * 2000),
    "deep XML": lambda: (b"", document((b"<a>" * (FULL // 3))[:FULL])),
    "flat XML": lambda: (b"", document(b"<BlockList>" + b"<Latest/>" * 460_000)),
    "attributes": lambda: (b"", document(b"<BlockList " + b"".join(b"a%d='' " % n for n in range(380_000)))),
    "long text": lambda: (b"", document(b"<BlockList><Latest>" + "\U0001f600".encode() * 1_000_000)),
    "JSON of arrays": lambda: (b"", json_of(b'{"displayName":[' + b"[]," * 340_000 + b"0]}")),
    "JSON of objects": lambda: (b"", json_of(b'{"displayName":[' + b'{"a":0},' * 130_000 + b"0]}")),
    "deep JSON": lambda: (b"", json_of(b"[" * MIB)),
    "long JSON": lambda: (b"", json_of(b"[" * FULL)),
    "documents that stop": lambda: (document(b"<BlockList>" + b" " * (FULL - 20))[:-1], b""),
    "bodies that nobody reads": lambda: (
        CHUNKED.replace(BLOB, "evil.example").encode(),
        b"ea60\r\n" + b"a" * 60_000 + b"\r\n",
    ),
    "a byte now and then": lambda: (put(f"{ZONE}/T/z", 10**6), b"a"),
    "heads that stop": lambda: (HEAD, b""),
    "requests that nobody reads": lambda: (b"", b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 8),
}

BY_DAY = ("many trailers",)  # each saturates a core for seconds


def attack(port, first, again, ends):
    """One client: connects anew where it is cut off."""
    while time.monotonic() < ends:
        with contextlib.suppress(OSError), connected(port) as client:
            client.settimeout(max(0.1, ends - time.monotonic()))
            client.sendall(first)
            while time.monotonic() < ends:
                if again:
                    client.sendall(again)
                    if len(again) < 10:
                        time.sleep(0.2)
                readable, _, _ = select.select([client], [], [], 0 if again else 0.2)
                if readable and not client.recv(65536):
                    break


def _delays_of(process):
    found = {}
    for thread in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            found[thread.name] = int((thread / "schedstat").read_text(encoding="ascii").split()[1]) / 1e9
    return found


class Emulator:
    """A process of its own, without engines."""

    def __init__(self, store):
        self.store = store
        command = [sys.executable, "-m", "mirror_engine", "emulator", "start", str(store), "--storage-only"]
        self.process = subprocess.Popen([*command, "-q", "-q"], stderr=subprocess.DEVNULL)
        self.state = StateFolder(store)
        while (info := self.state.read_info()) is None:
            assert self.process.poll() is None
            time.sleep(0.05)
        self.port = urlsplit(info.http).port

    def peak_mib(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii")
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")) / 1024

    def answered_in(self):
        """Seconds until a healthy client, which tries again where it is cut off, has its answer.

        Those in which a thread of the emulator or of this process waited for a processor do not count: the machine is
        busy.
        """
        started, before = time.monotonic(), self._delays()
        asked = request("GET", f"/{ZONE}?resource=filesystem&recursive=false", "localhost")
        while (status := self._status(asked)) == 0 and time.monotonic() - started < MAX_SECONDS:
            time.sleep(0.05)
        assert status == 200
        taken = time.monotonic() - started
        for known, now in zip(before, self._delays(), strict=True):
            taken -= max(seconds - known.get(thread, 0.0) for thread, seconds in now.items())
        return max(taken, 0.0)

    def _delays(self):
        """For how long the emulator's threads and this process's have waited for a processor."""
        return [_delays_of(self.process.pid), _delays_of(os.getpid())]

    def _status(self, asked):
        with contextlib.suppress(OSError):
            return status_of(exchange(self.port, asked))
        return 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(30)


@pytest.fixture(scope="module")
def hostile_emulator(tmp_path_factory):
    with Emulator(tmp_path_factory.mktemp("store")) as emulator:
        yield emulator


def attack_with(port, kinds, ends):
    """Fifty clients of each kind, in this process, until they have ended."""
    threads = [
        threading.Thread(target=attack, args=(port, *KINDS[kind](), ends)) for kind in kinds for _ in range(CLIENTS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def judged(emulator, said, ends, most):
    """Ask as a healthy client until the attack ends, and judge its answers and the emulator's memory."""
    time.sleep(0.3)
    taken = [emulator.answered_in()]
    while time.monotonic() < ends - 0.3:
        taken.append(emulator.answered_in())
        time.sleep(0.05)
    peak, median, longest = emulator.peak_mib(), statistics.median(taken), max(taken)
    said = f"{said}: peak {peak:.0f} MiB, {len(taken)} answers in {median:.3f} s, at most {longest:.3f} s"
    print(said)
    assert peak < MAX_MIB, said
    assert median < most, said


@pytest.fixture(scope="module")
def attackers():
    """Processes that attack with the processor time that the emulator and a healthy client leave."""
    with multiprocessing.get_context("spawn").Pool(PROCESSES, os.nice, (MAX_NICE,)) as pool:
        pool.map(time.sleep, [0.5] * PROCESSES, 1)  # they are there

        def attack(emulator, kinds, ends, parts=1):
            return pool.starmap_async(
                attack_with, [(emulator.port, kinds[part::parts], ends) for part in range(parts)], 1
            )

        yield attack


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind in BY_DAY else pytest.mark.nightly) for kind in KINDS]
)
def test_hostile_clients_cost_others_nothing(hostile_emulator, attackers, kind):
    ends = time.monotonic() + SECONDS
    attack = attackers(hostile_emulator, [kind], ends)
    try:
        judged(hostile_emulator, kind, ends, most=2.0)
    finally:
        attack.get()


@pytest.mark.nightly
def test_hostile_clients_of_all_kinds_cost_others_nothing(tmp_path, attackers):
    """They send from other processes. A healthy client waits for room, 2 s each time, and may be cut off."""
    with Emulator(tmp_path / "store") as emulator:
        ends = time.monotonic() + ALL_SECONDS
        attack = attackers(emulator, [*KINDS], ends, PROCESSES)
        try:
            judged(emulator, f"{len(KINDS)} kinds x {CLIENTS}", ends, most=6.0)
        finally:
            attack.get()
