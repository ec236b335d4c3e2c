"""The program `mirror-engine` for shells of tests: each call is a fork of one process that has imported everything.

A start takes a hundredth of a second instead of half a second of processor time. With MIRROR_TEST_STARTS=real, which
`make forms` sets, each call starts the real program.
"""

from __future__ import annotations

import atexit
import importlib
import marshal
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

# asks the server: sends arguments, folder, environment and streams; passes signals on to the fork; ends as it does
CLIENT = """#!{python} -IS
import marshal, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect({address!r})
is_in_background = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
request = marshal.dumps((sys.argv[1:], os.getcwd(), dict(os.environ), is_in_background))
socket.send_fds(server, [len(request).to_bytes(8, "big")], [0, 1, 2])
server.sendall(request)
child = int.from_bytes(server.recv(8), "big")
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    if signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, lambda number, _: os.kill(child, number))
code = int.from_bytes(server.recv(8), "big", signed=True)
if code < 0:
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@cache
def programs() -> str:
    """The folder with the program, for the beginning of PATH; its server ends with this process."""
    real = str(Path(sys.executable).parent)
    if os.environ.get("MIRROR_TEST_STARTS") == "real" or not hasattr(socket, "send_fds"):
        return real
    folder = tempfile.TemporaryDirectory()  # its end is that of this process
    atexit.register(folder.cleanup)
    address, program = f"{folder.name}/server", Path(folder.name, "bin/mirror-engine")
    program.parent.mkdir()
    program.write_text(CLIENT.format(python=sys.executable, address=address), encoding="utf-8")
    program.chmod(0o755)
    server = subprocess.Popen([sys.executable, __file__, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    atexit.register(server.communicate)  # closes its stdin, and waits for it
    assert server.stdout.readline() == b"listens\n"
    return f"{program.parent}{os.pathsep}{real}"


def serve(address: str) -> int:
    """Fork for each call until stdin ends; returns the exit code of a call, in its fork alone."""
    import mirror_engine.cli  # noqa: PLC0415 - clients need none of it

    for module in pkgutil.iter_modules(mirror_engine.cli.__path__, "mirror_engine.cli."):
        importlib.import_module(module.name)
    for name in ("deltalake", "mirror_engine.mirror", "pyarrow.compute", "pyarrow.parquet", "rich.table"):
        importlib.import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that wait
    server = socket.socket(socket.AF_UNIX)
    server.bind(address)
    server.listen(64)
    print("listens", flush=True)
    while server in select.select([server, sys.stdin], [], [])[0]:
        call, _ = server.accept()
        if not os.fork():
            server.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            return answer(call)
        call.close()
    return 0


def answer(call: socket.socket) -> int:
    """Run one call in a fork of its own, and say how it ended."""
    head, streams, *_ = socket.recv_fds(call, 8, 3)
    length, request = int.from_bytes(head, "big"), b""
    while len(request) < length:
        request += call.recv(length)
    arguments, folder, environment, is_in_background = marshal.loads(request)  # noqa: S302 - our own
    if child := os.fork():
        for stream in streams:
            os.close(stream)
        call.sendall(child.to_bytes(8, "big"))
        _, status = os.waitpid(child, 0)
        code = os.waitstatus_to_exitcode(status)
        call.sendall(code.to_bytes(8, "big", signed=True))
        os._exit(0)
    call.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    signal.signal(signal.SIGINT, signal.SIG_IGN if is_in_background else signal.default_int_handler)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(number, mode, buffering, encoding="utf-8")
        for number, mode, buffering in ((0, "r", -1), (1, "w", -1), (2, "w", 1))
    )
    sys.argv = ["mirror-engine", *arguments]
    from mirror_engine.__main__ import main  # noqa: PLC0415 - in a fork that has it already

    return main()


if __name__ == "__main__":
    sys.exit(serve(sys.argv[1]))
