"""Many clients at once over real sockets: whole files, no lost writes."""

from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from faulty import TABLE, faulty

pytestmark = pytest.mark.slow

UPLOADS, UPLOAD_BYTES = 64, 8 << 20
SMALL_FILES = 10_000
WRITERS, NUMBERS_EACH = 8, 8


def name(number):
    return f"{number:020}.parquet"


@pytest.fixture
def client(tmp_path):
    with faulty(tmp_path) as client:
        yield client


class Reader(threading.Thread):
    """Looks at the folder's files until reported to stop, as an engine does, and keeps what was not whole."""

    def __init__(self, folder, is_whole):
        super().__init__()
        self.folder, self.is_whole, self.torn, self.looks = folder, is_whole, [], 0
        self.stopped = threading.Event()

    def run(self):
        whole = set()
        while not self.stopped.is_set():
            self.looks += 1
            for path in self.folder.glob("0*.parquet"):
                known = (path.name, path.stat().st_ino)
                if known not in whole:
                    if self.is_whole(path.read_bytes()):
                        whole.add(known)
                    else:
                        self.torn.append(path.name)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.join()


def test_sixty_four_uploads_at_once_are_whole_whenever_they_are_seen(client, tmp_path) -> None:
    content = os.urandom(UPLOAD_BYTES)
    digest = hashlib.blake2b(content).digest()

    def upload(number):
        staged, half = f"{TABLE}/_{number}", UPLOAD_BYTES // 2
        client.create(staged)
        for position in (half, 0):
            answer = client("PATCH", f"{staged}?action=append&position={position}", content[position : position + half])
            assert answer.status == 202
        assert client("PATCH", f"{staged}?action=flush&position={UPLOAD_BYTES}").status == 200
        return client("PUT", f"{TABLE}/{name(number)}", x_ms_rename_source=f"/{staged}").status

    is_whole = lambda read: hashlib.blake2b(read).digest() == digest  # noqa: E731 - a test's own
    with Reader(tmp_path / TABLE, is_whole) as reader, ThreadPoolExecutor(UPLOADS) as pool:
        assert set(pool.map(upload, range(UPLOADS))) == {201}
    assert reader.torn == []
    assert reader.looks > 1
    assert sorted(path.name for path in (tmp_path / TABLE).iterdir()) == [name(number) for number in range(UPLOADS)]
    assert all((tmp_path / TABLE / name(number)).stat().st_size == UPLOAD_BYTES for number in range(UPLOADS))
    assert client.reported == []


@pytest.mark.parametrize("way", ["put", "rename"])
def test_eight_writers_that_race_for_the_next_number_lose_nothing(client, tmp_path, way) -> None:
    start = threading.Barrier(WRITERS)

    def land(path, content):
        if way == "put":
            return client("PUT", path, content, x_ms_blob_type="BlockBlob", If_None_Match="*").status
        staged = f"{TABLE}/_{content.decode()}"
        client.upload(staged, content)
        status = client("PUT", path, x_ms_rename_source=f"/{staged}", If_None_Match="*").status
        if status == 409:
            client("DELETE", staged)
        return status

    def write(writer):
        start.wait()
        number, mine = 1, {}
        while len(mine) < NUMBERS_EACH:
            content = f"{writer}-{len(mine)}".encode()
            status = land(f"{TABLE}/{name(number)}", content)
            assert status in {201, 409}
            if status == 201:
                mine[name(number)] = content
            number += 1
        return mine

    is_whole = lambda read: read.count(b"-") == 1  # noqa: E731 - a test's own
    with Reader(tmp_path / TABLE, is_whole) as reader, ThreadPoolExecutor(WRITERS) as pool:
        acknowledged = list(pool.map(write, range(WRITERS)))
    landed = {path.name: path.read_bytes() for path in (tmp_path / TABLE).iterdir()}
    assert landed == {at: content for mine in acknowledged for at, content in mine.items()}
    assert sorted(landed) == [name(number) for number in range(1, WRITERS * NUMBERS_EACH + 1)]
    assert reader.torn == []
