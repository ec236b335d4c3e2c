"""Starts a JVM that Python can talk to: directly, without the scripts and the second JVM of Spark's own launcher."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_MAIN = "org.apache.spark.api.python.PythonGatewayServer"
_LOOK_SECONDS = 0.01
# a commit at hand is finished whoever presses Ctrl-C; code between fork and exec is unsafe where threads are
_DEAF = ("/bin/sh", "-c", 'trap "" INT; exec "$0" "$@"') if os.name == "posix" else ()
# what Spark's launcher passes to every JVM, but `--add-modules=jdk.incubator.vector`: machine learning alone uses it,
# small runtimes lack it, and Java starts slower with it
MODULE_OPTIONS = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in (
            "java.lang",
            "java.lang.invoke",
            "java.lang.reflect",
            "java.io",
            "java.net",
            "java.nio",
            "java.util",
            "java.util.concurrent",
            "java.util.concurrent.atomic",
            "jdk.internal.ref",
            "sun.nio.ch",
            "sun.nio.cs",
            "sun.security.action",
            "sun.util.calendar",
        )
    ),
    "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)


class Gateway:
    """A JVM that is about to listen; it ends when its standard input is closed, so with this process at the latest.

    Args:
        java: the program.
        options: beside those that Spark always needs.
        class_path: jars, and folders of jars as `folder/*`.
        log: takes all that it prints.

    Raises:
        OSError: the program cannot be run.
    """

    def __init__(self, java: str, options: Sequence[str], class_path: Sequence[str], log: IO[bytes]) -> None:
        self._told = Path(tempfile.mkdtemp()) / "connection"
        command = [*_DEAF, java, *MODULE_OPTIONS, *options, "-cp", os.pathsep.join(class_path), _MAIN]
        environment = {**os.environ, "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._told)}
        try:
            self.process = subprocess.Popen(  # noqa: S603 - the machine's own Java
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        except OSError:
            self._told.parent.rmdir()
            raise

    def connection(self) -> tuple[int, str]:
        """Its port on this machine, and the secret it wants to hear first; waits until it listens.

        Raises:
            ChildProcessError: it ended before.
        """
        try:
            while not self._told.exists():
                if self.process.poll() is not None:
                    raise ChildProcessError(f"Java ended with {self.process.returncode}")
                time.sleep(_LOOK_SECONDS)
            told = self._told.read_bytes()
        finally:
            shutil.rmtree(self._told.parent, ignore_errors=True)
        port, length = struct.unpack_from(">ii", told)
        return port, told[8 : 8 + length].decode("utf-8")


def end_process(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Tell a JVM to leave; kill it where it does not."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
