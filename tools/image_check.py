"""Build the images and run them with compose.yaml, as an orchestrator would: no root, no network but their own.

Run it as `make image-check`, or with the targets as arguments: `default`, `spark`. It takes root on Linux, buildah,
mmdebstrap, util-linux, and an index of Python and Debian packages; elsewhere it is skipped with the reason. Registries
of images are not asked: the base is made from the packages of `debian:trixie-slim`. Namespaces and read-only mounts
take the place of a container runtime, with what image and compose.yaml say of user, environment, command and volumes.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

HOME = Path(__file__).parents[1]
TOOLS = ("buildah", "mmdebstrap", "nsenter", "setpriv", "unshare")
OWN_CERTIFICATES = Path("/usr/local/share/ca-certificates")
TARGETS = ("default", "spark")
TOKEN = "image-check-0123456789"  # noqa: S105 - of one run
PATIENCE_SECONDS = 300.0  # Spark starts in a minute or two on a busy machine
DEVICES = {"null": 3, "zero": 5, "random": 8, "urandom": 9}  # by their minor number
UP, SIOCGIFFLAGS, SIOCSIFFLAGS = 1, 0x8913, 0x8914


class FailedError(Exception):
    """What an image does not do."""


def missing() -> str:
    """Why images cannot be built and run here; empty where they can."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        return "needs root on Linux, for namespaces and mounts"
    if absent := [name for name in TOOLS if shutil.which(name) is None]:
        return f"needs {', '.join(absent)}: apt-get install buildah mmdebstrap util-linux"
    probe = subprocess.run(["unshare", "--mount", "--net", "--pid", "--fork", "true"], capture_output=True, check=False)
    return probe.stderr.decode().strip() if probe.returncode else ""


def output_of(*command: str | Path, code: int = 0, **options: Any) -> str:  # noqa: ANN401 - as `subprocess.run`
    """What a command prints; FailedError where it ends with another code."""
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, capture_output=True, text=True, check=False, **options
    )
    if done.returncode != code:
        raise FailedError(
            f"{shlex.join(map(str, command))}: exit code {done.returncode}\n{(done.stdout + done.stderr)[-4000:]}"
        )
    return done.stdout.strip()


def until(check: Callable[[], object]) -> None:
    """Call it until it raises nothing."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            check()
        except (FailedError, OSError, IndexError):
            if time.monotonic() > ends:
                raise
            time.sleep(0.2)
        else:
            return


class Builder:
    """buildah with a storage of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._places = ["--root", str(folder / "storage"), "--runroot", str(folder / "run")]

    def __call__(self, *words: str) -> str:
        """Run a command; what it prints."""
        environment = {**os.environ, "BUILDAH_ISOLATION": "chroot", "STORAGE_DRIVER": "vfs"}
        return output_of("buildah", *self._places, *words, env=environment)

    def make_base(self) -> None:
        """The base image, from Debian's packages; it trusts whom this machine trusts."""
        dockerfile = (HOME / "Dockerfile").read_text(encoding="utf-8")
        suite = re.findall(r"^ARG BASE=debian:(\w+)-slim$", dockerfile, re.MULTILINE)
        trusted = sorted(OWN_CERTIFICATES.glob("*.crt"))
        hooks = [f'--setup-hook=mkdir -p "$1{OWN_CERTIFICATES}"']
        hooks += [f"--customize-hook=copy-in {path} {OWN_CERTIFICATES}" for path in trusted]
        root = self._folder / "base.tar"
        output_of("mmdebstrap", "--quiet", "--mode=root", "--variant=minbase", *hooks, *suite, root)
        container = self("from", "scratch")
        self("add", container, str(root), "/")
        self("commit", "--rm", container, "mirror-engine-base")

    def build(self, target: str) -> None:
        """An image of the Dockerfile."""
        base = ["--pull-never", "--build-arg", "BASE=localhost/mirror-engine-base"]
        options = ["--format", "docker", "--network", "host", "--target", target, "--tag", f"mirror-engine:{target}"]
        self("build", *base, *options, str(HOME))

    def mounted(self, target: str) -> tuple[Path, dict[str, Any]]:
        """The root of a new container of an image, and the image's configuration."""
        name = f"localhost/mirror-engine:{target}"
        config = json.loads(self("inspect", "--type", "image", name))["Docker"]["config"]
        return Path(self("mount", self("from", "--pull-never", name))), config


class Container:
    """A service of compose.yaml: a process in namespaces of its own, on the image's root, which it cannot write.

    Args:
        root: of the image.
        config: of the image.
        service: what compose.yaml says of it.
        volumes: folders here, by the names of volumes.
        neighbour: whose network it shares; None for its own, with a loopback alone.
    """

    def __init__(
        self,
        root: Path,
        config: dict[str, Any],
        service: dict[str, Any],
        volumes: dict[str, Path],
        neighbour: Container | None = None,
    ) -> None:
        user, _, group = str(service.get("user", config["User"])).partition(":")
        ids = [f"--reuid={user}", f"--regid={group or user}", "--clear-groups", "--no-new-privs", "--bounding-set=-all"]
        names = {**dict(each.split("=", 1) for each in config["Env"]), **service.get("environment", {})}
        assigned = [f"{name}={text}" for name, text in names.items() if not text.startswith("${")]
        self._as_user = ["setpriv", *ids, "env", "-i", *assigned]
        words = [*service.get("entrypoint", config["Entrypoint"]), *service.get("command", config["Cmd"] or ())]
        mounts = []
        for volume in service["volumes"]:
            source, place, *mode = volume.split(":")
            mounts.append(f"{volumes.get(source) or HOME / source}:{place}:{''.join(mode) or 'rw'}")
        self._inside = [str(root), ",".join(mounts), *self._as_user, *(word.replace("$$", "$") for word in words)]
        self._neighbour = neighbour
        self._process: subprocess.Popen[str]

    def start(self, **environment: str) -> None:
        """Run its command, with variables that compose.yaml takes from outside."""
        place = self._inside.index("-i") + 1
        words = [
            *self._inside[:place],
            *(f"{name}={text}" for name, text in environment.items()),
            *self._inside[place:],
        ]
        joined = ["nsenter", "--target", self._neighbour.pid, "--net"] if self._neighbour else []
        own = ["unshare", "--mount", "--pid", "--uts", "--fork", "--kill-child", *([] if joined else ["--net"])]
        command = [*joined, *own, sys.executable, __file__, "--inside", *words]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    @property
    def pid(self) -> str:
        """The first process inside, as it is numbered here; IndexError, OSError where none runs."""
        own = self._process.pid
        return Path(f"/proc/{own}/task/{own}/children").read_text(encoding="ascii").split()[0]

    def run(self, *words: str, code: int = 0) -> str:
        """Run a command inside, as its user; what it prints."""
        enter = ["nsenter", "--target", self.pid, "--mount", "--net", "--pid", "--uts", "--root", "--wd"]
        return output_of(*enter, *self._as_user, *words, code=code)

    def end(self) -> tuple[int, str]:
        """The exit code and all that was printed, once it has ended."""
        printed, _ = self._process.communicate(timeout=PATIENCE_SECONDS)
        return self._process.returncode, printed

    def stop(self) -> tuple[int, str]:
        """Stop it as orchestrators do."""
        os.kill(int(self.pid), signal.SIGTERM)
        return self.end()

    def kill(self) -> None:
        """End it whatever it does; a process that changed its user outlives its parent."""
        with suppress(OSError, IndexError):
            os.kill(int(self.pid), signal.SIGKILL)
        self._process.kill()
        self._process.wait()


def inside(root: str, mounts: str, *words: str) -> None:
    """Become a container's first process: its mounts and loopback, then its command in its root."""
    with socket.socket() as any_socket:
        flags = struct.unpack("16sh", fcntl.ioctl(any_socket, SIOCGIFFLAGS, struct.pack("16sh", b"lo", 0)))[1]
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh", b"lo", flags | UP))
    socket.sethostname("container")
    (Path(root) / "etc/hosts").write_text("127.0.0.1 localhost\n::1 localhost\n", encoding="ascii")
    commands = ["mount --make-rprivate /", f"mount --bind {root} {root}"]
    for mount in mounts.split(","):
        source, place, mode = mount.split(":")
        (Path(root) / place[1:]).mkdir(exist_ok=True)
        commands += [f"mount --bind {source} {root}{place}", f"mount -o remount,bind,{mode} {root}{place}"]
    commands += [f"mount -t proc proc {root}/proc", f"mount -t tmpfs -o mode=755 tmpfs {root}/dev"]
    commands += [f"mknod -m 666 {root}/dev/{name} c 1 {minor}" for name, minor in DEVICES.items()]
    for command in [*commands, f"ln -s /proc/self/fd {root}/dev/fd", f"mount -o remount,bind,ro {root}"]:
        subprocess.run(command.split(), check=True)
    os.chroot(root)
    os.chdir("/store")
    os.execvp(words[0], words)  # noqa: S606 - the container's command


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long something took."""
    begun = time.monotonic()
    yield
    print(f"  {time.monotonic() - begun:6.1f} s  {what}", flush=True)


def expect(*, holds: bool, what: str) -> None:
    """Raise FailedError with this unless it holds."""
    if not holds:
        raise FailedError(what)


def check(builder: Builder, target: str, store: Path) -> None:
    """Build an image, and hold it to what it promises."""
    print(f"{target}:")
    with timed("built"):
        builder.build(target)
    root, config = builder.mounted(target)
    user, _, group = config["User"].partition(":")
    store.mkdir(mode=0o700)
    os.chown(store, int(user), int(group))
    bytes_in_it = sum(path.lstat().st_size for path in root.rglob("*"))
    print(f"  {bytes_in_it / 1e6:6.0f} MB, base included; user {user}, volumes {', '.join(config['Volumes'])}")
    expect(holds=(root / "usr/bin/java").exists() == (target == "spark"), what="Java is in the wrong image")
    services = yaml.safe_load((HOME / "compose.yaml").read_text(encoding="utf-8"))["services"]
    emulator = Container(root, config, services["emulator"], {"store": store})
    publisher = Container(root, config, services["publisher"], {"store": store}, emulator)
    emulator.start()
    expect(holds="MIRROR_ENGINE_TOKEN" in emulator.end()[1], what="without a token it must end, and say why")
    emulator.start(MIRROR_ENGINE_TOKEN=TOKEN)
    try:
        with timed("healthy"):
            until(lambda: emulator.run(*config["Healthcheck"]["Test"][1:]))
        for place in ("/", "/opt/mirror-engine/bin", "/tmp"):  # noqa: S108 - what is tried
            emulator.run("touch", f"{place}/x", code=1)
        expect(holds=f"uid={user}(" in emulator.run("id"), what="it is another user")
        with timed("published"):
            publisher.start()
            code, printed = publisher.end()
            expect(holds=code == 0, what=f"the publisher ended with {code}\n{printed}")
        with timed("replicated"):
            emulator.run("mirror-engine", "wait", "/store/Workspace/Mirror", "--timeout", f"{PATIENCE_SECONDS:g}s")
        shown = emulator.run("mirror-engine", "-C", "/store/Workspace/Mirror", "show", "Sales.Stores")
        expect(holds="2   Wien" in shown, what=shown)
        with timed("merged, without a network"):
            emulator.run("mirror-engine", "init", "/store/demo")
            emulator.run("mirror-engine", "sync", "/store/demo", "--progress", "none")
        spark_log = store / "demo/.mirror-engine/logs/spark.log"
        expect(holds=spark_log.exists() == (target == "spark"), what="the wrong engine merged")
        emulator.run(*config["Healthcheck"]["Test"][1:])
        with timed("stopped"):
            code, printed = emulator.stop()
        is_logged = "event=commit_finished" in printed and TOKEN not in printed
        expect(holds=code == 0 and is_logged, what=f"SIGTERM ended it with {code}\n{printed}")
    except FailedError:
        emulator.kill()
        print(emulator.end()[1][-4000:], file=sys.stderr)
        raise
    finally:
        emulator.kill()


def main(words: Sequence[str]) -> int:
    """Check the targets that are named, or all."""
    if words[:1] == ["--inside"]:
        inside(*words[1:])
    if reason := missing():
        print(f"skipped: {reason}")
        return 0
    with tempfile.TemporaryDirectory(prefix="mirror-engine-image-") as name:
        builder = Builder(Path(name))
        try:
            with timed("base, from Debian's packages"):
                builder.make_base()
            for target in words or TARGETS:
                check(builder, target, Path(name) / f"store-{target}")
        except FailedError as failure:
            print(f"failed: {failure}", file=sys.stderr)
            return 1
        finally:
            builder("umount", "--all")
            builder("rm", "--all")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
