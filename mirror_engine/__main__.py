"""The program `mirror-engine`, also as `python -m mirror_engine`, and as the file that spark-submit takes."""

import os
import signal
import sys

INTERRUPTED = 130  # as in `cli.exits`, which is not loaded yet


def _interrupt(_: int, frame: object) -> None:
    """Exit at once on Ctrl+C while modules are imported: an exception there may be lost or replaced."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):  # type: ignore[attr-defined]  # no import for it
            error = '{"code": "interrupted", "message": "interrupted", "help": null, "exit_code": 130}'
            document = f'{{"schema_version": 1, "command": null, "error": {error}}}'
            os.write(2, f"{document if '--json' in sys.argv else 'error: interrupted'}\n".encode())
            os._exit(INTERRUPTED)
        frame = frame.f_back  # type: ignore[attr-defined]
    raise KeyboardInterrupt


def main() -> int:
    """Run the command in `sys.argv` and return its exit code. Raises nothing, not even at Ctrl+C."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored: in a script's background
        signal.signal(signal.SIGINT, _interrupt)
    from mirror_engine.cli.main import main as run  # noqa: PLC0415 - Ctrl+C is caught meanwhile

    return run()


if __name__ == "__main__":
    # when run by its path, Python looks for modules in this folder first
    here = os.path.dirname(os.path.realpath(__file__))  # noqa: PTH120 - pathlib takes time before Ctrl+C is caught
    sys.path[:] = [place for place in sys.path if os.path.realpath(place) != here]
    sys.exit(main())
