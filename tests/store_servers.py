"""Real servers for tests: OneLake and ADLS by the emulator, Azure Blob by Azurite, S3 by S3Proxy.

A test names the fixture of its server, which then runs until the last test; one that cannot be had skips its tests.

What they do differently from the services they stand for: Azurite writes `\\` in a name as `/` and starts every list
at its beginning; S3Proxy lets two PUTs with the same `If-Match` win that arrive in the same millisecond (two with
`If-None-Match: *` it does not).
"""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import time
import urllib.request
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from filelock import FileLock

from mirror_engine.errors import JavaMissing
from mirror_engine.landing_zone.layout import ZONE
from mirror_engine.onelake.connection import CA_VARIABLES
from mirror_engine.onelake.options import ServerPlan
from mirror_engine.onelake.serving import Server
from mirror_engine.storage import azure_stores
from mirror_engine.storage.azure_stores import BlobUrl, DatalakeUrl
from mirror_engine.storage.s3_store import S3Url
from mirror_engine.tables.spark.java import find_java

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mirror_engine.onelake.middleware import RejectedRequest
    from mirror_engine.storage.store_url import StoreUrl

AZURITE = "azurite@3.35.0"
S3PROXY = "4.1.0"
START_SECONDS = 30
INSTALL_SECONDS = 200
NPM_INSTALL = ("npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts")
IVY_MODULE = f"""<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
<info organisation="tests" module="servers"/>
<dependencies><dependency org="org.gaul" name="s3proxy" rev="{S3PROXY}" transitive="false" conf="*->default">
<artifact name="s3proxy" type="jar" ext="jar" m:classifier="jar-with-dependencies"/>
</dependency></dependencies></ivy-module>"""

ACCOUNT = "devstoreaccount1"
AZURITE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="  # everybody's
BUCKET, WORKSPACE, ITEM_KIND = "mirrors", "Workspace", "MountedRelationalDatabase"
CREDENTIALS = ("AWS_", "AZURE_", "AZURITE_", "GOOGLE_", "HTTPS_PROXY", "https_proxy")  # no one else's


@dataclass(frozen=True)
class StoreServer:
    """A running server.

    Attributes:
        name: of the kind of store.
        url: its bucket, container or workspace.
        environment: all that a client needs: address, credentials, authorities.
        store: for the emulator, the folder that it serves: `store/Workspace/ITEM`.
    """

    name: str
    url: StoreUrl
    environment: Mapping[str, str]
    store: Path | None = None

    def new_root(self) -> StoreUrl:
        """A ROOT that nobody has used; in OneLake an item, which is there with its landing zone."""
        name = f"root{next(_NUMBERS)}-{os.getpid()}"
        if self.store is None:
            return self.url / name
        (self.store / WORKSPACE / name / ZONE).mkdir(parents=True)
        return self.url / f"{name}.{ITEM_KIND}"

    def around(self, environ: Mapping[str, str]) -> dict[str, str]:
        """An environment in which this server is the only store: for a process, or for `os.environ`."""
        kept = {name: text for name, text in environ.items() if not name.startswith(CREDENTIALS)}
        path = os.pathsep.join(filter(None, (self.environment.get("PATH"), environ.get("PATH"))))
        return {**kept, **self.environment, "PATH": path}

    @contextmanager
    def in_use(self) -> Iterator[StoreServer]:
        """This process as one that reaches this server, until left."""
        before = dict(os.environ)
        _set_environment(self.around(before))
        try:
            yield self
        finally:
            _set_environment(before)
            gc.collect()  # closes connections of clients that are gone: the emulator takes 256


_NUMBERS = count(1)


def alone(monkeypatch: pytest.MonkeyPatch, **environment: str) -> None:
    """Set these variables, and no other that a client of a store reads."""
    for name in tuple(os.environ):
        if name.startswith(CREDENTIALS) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name, text in environment.items():
        monkeypatch.setenv(name, text)
    azure_stores.azure_credential.cache_clear()


def _set_environment(wanted: Mapping[str, str]) -> None:
    for name in os.environ.keys() - wanted.keys():
        del os.environ[name]
    os.environ.update(wanted)
    azure_stores.azure_credential.cache_clear()


@pytest.fixture(scope="session")
def installed(pytestconfig, tmp_path_factory) -> Callable[..., Path]:
    """Gives the folder in which a command installed a program, once; one that cannot be had skips its test."""

    def installed(*command: str, **files: str) -> Path:
        """`files` are there before the command, by name with `_` for the dot."""
        files.setdefault("package_json", "{}")
        cache = getattr(pytestconfig, "cache", None)  # absent with -p no:cacheprovider
        wanted = f"{zlib.crc32(' '.join([*command, *files.values()]).encode()):08x}"
        folder = cache.mkdir(f"client-{wanted}") if cache else tmp_path_factory.mktemp("client")
        with FileLock(folder / "lock"):
            if not (folder / "installed").exists():
                for name, text in files.items():
                    (folder / name.replace("_", ".")).write_text(text)
                try:
                    subprocess.run(
                        command, cwd=folder, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=True
                    )
                except (OSError, subprocess.SubprocessError) as error:
                    pytest.skip(f"{error}: {(getattr(error, 'stderr', '') or '')[-500:]}")
                (folder / "installed").touch()
        return folder

    return installed


@pytest.fixture(scope="session")
def java() -> Path:
    """The home of a Java runtime."""
    try:
        return find_java().home
    except JavaMissing:
        pytest.skip("Java is missing")


@pytest.fixture(scope="session")
def s3_server(java, installed, tmp_path_factory) -> Iterator[StoreServer]:
    """S3Proxy, whose objects are in memory; with conditional PUTs, and `start-after` in lists."""
    ivy = next(Path(find_spec("pyspark").origin).parent.glob("jars/ivy-*.jar"))
    program = str(java / "bin/java")
    fetch = (program, "-jar", str(ivy), "-ivy", "ivy.xml", "-cache", "ivy", "-retrieve", "[artifact].[ext]")
    jar = installed(*fetch, ivy_xml=IVY_MODULE) / "s3proxy.jar"
    folder, port = tmp_path_factory.mktemp("s3"), _free_port()
    settings = {
        "s3proxy.authorization": "aws-v2-or-v4",
        "s3proxy.endpoint": f"http://127.0.0.1:{port}",
        **dict.fromkeys(("s3proxy.identity", "jclouds.identity"), "key"),
        **dict.fromkeys(("s3proxy.credential", "jclouds.credential"), "secret"),
        "jclouds.provider": "transient-nio2",
    }
    (folder / "s3proxy.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    quick = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-DLOG_LEVEL=warn")
    environment = {
        "AWS_ENDPOINT_URL": settings["s3proxy.endpoint"],
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    command = (program, *quick, "-jar", str(jar), "--properties", "s3proxy.conf")
    with _running(command, folder, port):
        server = StoreServer("S3", S3Url(BUCKET, ""), environment)
        _create_bucket(server)
        yield server


@pytest.fixture(scope="session")
def azurite(installed, tmp_path_factory) -> Iterator[StoreServer]:
    """Azurite's Blob service, whose blobs are in memory."""
    from azure.storage.blob import BlobServiceClient  # noqa: PLC0415 - half a second

    program = installed(*NPM_INSTALL, AZURITE) / "node_modules/azurite/dist/src/blob/main.js"
    folder, port = tmp_path_factory.mktemp("azurite"), _free_port()
    options = ("--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry")
    endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
    environment = {
        "AZURE_STORAGE_ACCOUNT": ACCOUNT,
        "AZURE_STORAGE_KEY": AZURITE_KEY,
        "AZURE_STORAGE_USE_EMULATOR": "true",
        "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{port}",
    }
    with _running(("node", str(program), *options, "--blobPort", str(port)), folder, port):
        with BlobServiceClient(endpoint, credential=AZURITE_KEY) as client:
            client.create_container(BUCKET)
        yield StoreServer("Azure Blob", BlobUrl(BUCKET, f"{ACCOUNT}.blob.core.windows.net"), environment)


@pytest.fixture(scope="session")
def rejections() -> list[RejectedRequest]:
    """What the emulator has rejected so far."""
    return []


@pytest.fixture(scope="session")
def emulator(tmp_path_factory, rejections) -> Iterator[Server]:
    """The emulator without engines, in this process; what it reports as its own error fails the run."""
    errors: list[str] = []
    plan = ServerPlan(tmp_path_factory.mktemp("emulator") / "store", workspace=WORKSPACE, has_engines=False)
    with Server(plan, on_error=errors.append, on_rejected=rejections.append) as server:
        yield server
    assert [error for error in errors if "a rename without a condition" not in error] == []


@pytest.fixture(scope="session")
def onelake_server(emulator) -> StoreServer:
    """OneLake: production URLs by the proxy, over https, with Entra ID."""
    url = DatalakeUrl(WORKSPACE, "onelake.dfs.fabric.microsoft.com")
    found = emulator.connection.environment
    # each connection of requests loads all that its file holds: a hundred roots take 25 ms
    ours = dict.fromkeys(CA_VARIABLES, found["NODE_EXTRA_CA_CERTS"])
    return StoreServer("OneLake", url, {**found, **ours}, emulator.plan.store)


@pytest.fixture(scope="session")
def adls_server(emulator) -> StoreServer:
    """ADLS Gen2 with an account key and an endpoint of its own, over http."""
    environment = {
        "AZURE_STORAGE_ACCOUNT": ACCOUNT,
        "AZURE_STORAGE_KEY": AZURITE_KEY,
        "AZURE_STORAGE_ENDPOINT": emulator.connection.http,
    }
    url = DatalakeUrl(WORKSPACE, f"{ACCOUNT}.dfs.core.windows.net")
    return StoreServer("ADLS Gen2", url, environment, emulator.plan.store)


SERVERS = ["onelake_server", "adls_server", "azurite", "s3_server"]
ONE_BY_DAY = pytest.mark.parametrize(  # of a test that takes many seconds in each
    "store_server",
    [SERVERS[0], *(pytest.param(name, marks=pytest.mark.nightly) for name in SERVERS[1:])],
    indirect=True,
)


@pytest.fixture(scope="session", params=SERVERS)
def store_server(request) -> StoreServer:
    """Each server in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def store(store_server) -> Iterator[StoreServer]:
    """Each server in turn, which this process reaches."""
    with store_server.in_use():
        yield store_server


def _create_bucket(server: StoreServer) -> None:
    import obstore  # noqa: PLC0415 - only S3's tests need it

    with server.in_use():
        url = obstore.sign(server.url.object_store(), "PUT", "", timedelta(minutes=1))
    with urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=START_SECONDS):  # noqa: S310 - http
        pass


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextmanager
def _running(command: tuple[str, ...], folder: Path, port: int) -> Iterator[None]:
    """A server's process that listens; ended when left."""
    with (folder / "log").open("wb") as log:
        try:
            process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        except OSError as error:
            pytest.skip(f"{command[0]}: {error.strerror}")
    try:
        ends = time.monotonic() + START_SECONDS
        while not _listens(port):
            assert process.poll() is None, (folder / "log").read_text()[-2000:]
            assert time.monotonic() < ends, (folder / "log").read_text()[-2000:]
            time.sleep(0.02)
        yield
    finally:
        process.kill()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
