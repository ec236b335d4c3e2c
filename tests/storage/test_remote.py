"""Reading by ranges, and what is said of a refused request."""

from __future__ import annotations

import random
import re

import pytest

from mirror_engine.errors import NoAccess, StorageUnavailable
from mirror_engine.storage import remote
from mirror_engine.storage.azure_stores import DatalakeUrl
from mirror_engine.storage.remote import RangedReader, unavailable
from mirror_engine.storage.requests import Requests
from mirror_engine.storage.s3_store import S3Url

ONELAKE = DatalakeUrl("Sales", "onelake.dfs.fabric.microsoft.com", "Shop.Lakehouse")
ADLS = DatalakeUrl("zone", "acme.dfs.core.windows.net")
S3 = S3Url("bucket", "")


class Ranges:
    def __init__(self, content):
        self.content, self.asked = content, []

    def __call__(self, start, end):
        assert 0 <= start < end <= len(self.content)
        self.asked.append((start, end))
        return self.content[start:end]

    def reader(self, first=b""):
        return RangedReader(len(self.content), self, first).buffered()


@pytest.fixture
def small_steps(monkeypatch):
    for name, size in (("FIRST_BYTES", 1000), ("MAX_AHEAD_BYTES", 8000), ("TAIL_BYTES", 100)):
        monkeypatch.setattr(remote, name, size)


def test_a_small_file_is_read_once():
    for first in (b"", b"content"):
        ranges = Ranges(b"content")
        with ranges.reader(first) as file:
            assert [file.read(3), file.read(), file.seek(0), file.read()] == [b"con", b"tent", 0, b"content"]
        assert len(ranges.asked) == (not first)


def test_an_empty_file_asks_for_nothing():
    ranges = Ranges(b"")
    assert [ranges.reader().read(), ranges.reader().read(1)] == [b"", b""]


@pytest.mark.usefixtures("small_steps")
def test_a_file_read_to_its_end_is_read_in_growing_steps():
    ranges = Ranges(bytes(100_000))
    with ranges.reader(ranges.content[:1000]) as file:
        while file.read(512):
            pass
    assert [end - start for start, end in ranges.asked][:5] == [8192, 8192, 8192, 8192, 8192]
    assert len(ranges.asked) < 15


@pytest.mark.usefixtures("small_steps")
def test_the_tail_is_read_together():
    ranges = Ranges(bytes(range(200)) * 500)
    with ranges.reader(ranges.content[:1000]) as file:
        assert file.seek(-8, 2) == 99_992
        assert file.read(8) == ranges.content[-8:]
        file.seek(-90, 2)
        assert file.read() == ranges.content[-90:]
    assert ranges.asked == [(99_900, 100_000)]


@pytest.mark.usefixtures("small_steps")
@pytest.mark.parametrize("seed", range(30))
def test_any_reads_give_the_same_bytes_as_a_file(seed, tmp_path):
    chance = random.Random(seed)
    content = chance.randbytes(chance.choice([1, 99, 1001, 30_000]))
    (tmp_path / "f").write_bytes(content)
    with Ranges(content).reader(content[: chance.choice([0, 1, 1000])]) as file, (tmp_path / "f").open("rb") as other:
        for _ in range(60):
            if chance.random() < 0.5:
                position = chance.randrange(len(content) + 10)
                assert file.seek(position) == other.seek(position)
            size = chance.choice([-1, 0, 1, 7, 500, 20_000])
            assert file.read(size) == other.read(size)
            assert file.tell() == other.tell()


def test_a_read_that_is_cut_short_is_no_end_of_file():
    with (
        RangedReader(10, lambda start, end: b"x" * (end - start - 1)).buffered() as file,
        pytest.raises(StorageUnavailable, match="cut short"),
    ):
        file.read()


@pytest.mark.parametrize(
    ("url", "status", "code", "finding"),
    [
        (ONELAKE, 401, "Unauthorized", "the credential is not accepted"),
        (ONELAKE, 403, "Forbidden", "no permission\n  -> .*Contributor in the workspace"),
        (ADLS, 403, "AuthorizationPermissionMismatch", "no permission\n  -> .*Storage Blob Data Contributor"),
        (ADLS, 403, "AuthorizationFailure", "network rule"),
        (ONELAKE, 403, "RequestDeniedByInboundPolicy", "network rule"),
        (ADLS, 403, "AuthenticationFailed", "credential is not accepted"),
        (S3, 403, "SignatureDoesNotMatch", "credential is not accepted"),
        (S3, 400, "ExpiredToken", "credential is not accepted"),
        (S3, 0, "NoCredential", "no credential was found\n  -> .*AWS_ACCESS_KEY_ID"),
        (ADLS, 0, "NoCredential", "no credential was found\n  -> Run az login"),
        (S3, 403, "AccessDenied", "no permission\n  -> .*s3:GetObject"),
        (ONELAKE, 404, "WorkspaceNotFound", "no such workspace"),
        (ONELAKE, 404, "ContainerNotFound", "no such workspace"),
        (ADLS, 404, "FilesystemNotFound", "no such container"),
        (S3, 404, "NoSuchBucket", "no such bucket"),
        (ONELAKE, 404, "ArtifactNotFound", "no such item: .*\n  -> .*NAME.MountedRelationalDatabase"),
        (ONELAKE, 400, "FriendlyNameSupportDisabled", "no such item"),
        (ONELAKE, 400, "CapacityNotActive", "capacity is paused"),
        (S3, 301, "PermanentRedirect", "another region\n  -> .*AWS_REGION"),
        (ADLS, 429, "TooManyRequests", "fewer requests"),
        (ADLS, 503, "ServerBusy", "busy"),
        (ONELAKE, 403, "CapacityNotActive", "capacity is paused"),
        (S3, 403, "RequestTimeTooSkewed", "clocks .* differ"),
        (ADLS, 0, "AADSTS90033", r"cannot log in now \(AADSTS90033\)"),
        (ADLS, 0, "AADSTS7000215", r"credential .* is refused \(AADSTS7000215\)"),
        (ADLS, 0, "AADSTS900331", r"credential .* is refused \(AADSTS900331\)"),
        (ADLS, 500, "InternalError", "answers 500 InternalError"),
        (ADLS, 400, "", "answers 400\n  -> "),
        (ADLS, 0, "", "cannot be reached"),
    ],
)
def test_a_refusal_has_one_line_and_help(url, status, code, finding):
    error = unavailable(url, "Files/T", "list", status, code)
    assert error.message.startswith(("Files/T: cannot list it: ", f"{url}: "))
    assert error.help.endswith(".")
    assert isinstance(error, NoAccess) == bool(re.search("credential|no permission|network rule", finding))
    assert re.search(finding, str(error))
    assert unavailable(url, "", "list", status, code).message.startswith(f"{url}: ")


def test_requests_are_counted_by_kind():
    listed = []
    requests = Requests(listed.append)
    for kind in ("list", "read", "list"):
        requests.add(kind)
    requests.listed(3)
    requests.listed(2)
    assert requests.by_kind() == {"list": 2, "read": 1}
    assert listed == [3, 5]
