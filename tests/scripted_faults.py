"""Ports whose n-th call fails: before it did anything, or after it did everything."""

from __future__ import annotations

import io
import math
import re
import threading
from enum import StrEnum

from mirror_engine.errors import StorageUnavailable


class Fault(StrEnum):
    REFUSED = "refused"  # nothing happened
    LOST_ANSWER = "lost answer"  # it was done, but the caller sees a failure


class Script:
    """Which call fails, and how: `faults` by the number of the call, counted from 1 over all methods.

    Attributes:
        calls: the calls so far, as `move Orders/….parquet`; its length is the number of the last call.
    """

    def __init__(self, faults=None):
        self.calls = []
        self._faults = faults or {}
        self._lock = threading.Lock()

    def run(self, name, call):
        with self._lock:
            self.calls.append(name)
            fault = self._faults.get(len(self.calls))
        if fault is Fault.REFUSED:
            raise StorageUnavailable(f"{name}: refused by script")
        result = call()
        if fault is Fault.LOST_ANSWER:
            if isinstance(result, io.IOBase):
                result.close()
            raise StorageUnavailable(f"{name}: answer lost by script")
        return result


class Failing(Script):
    """A script in which calls fail by their words, such as `move .*Orders`, so many `times` or until `is_over`."""

    def __init__(self, pattern, error=StorageUnavailable, *, times=math.inf, fault=Fault.REFUSED):
        super().__init__()
        self.pattern, self.error, self.times, self.fault = pattern, error, times, fault
        self.is_over = False

    def run(self, name, call):
        if re.match(self.pattern, name) and not self.is_over:
            self.times -= 1
            self.is_over = self.times <= 0
            if self.fault is Fault.LOST_ANSWER:
                super().run(name, call)
            raise self.error(f"{name}: scripted")
        return super().run(name, call)


class Acting(Script):
    """A script in which something is done, once, before a call: of these words, or of that number."""

    def __init__(self, when, act):
        super().__init__()
        self.when, self.act = when, act

    def run(self, name, call):
        if self.act and (self.when == len(self.calls) + 1 or re.match(str(self.when), name)):
            act, self.act = self.act, None
            act()
        return super().run(name, call)


def faulty(port, script):
    """The same `Storage`, `DeltaWriter` or `Files`, whose calls fail as the script says; `close` never fails."""
    return _Faulty(port, script)


class _Faulty:
    def __init__(self, port, script):
        self._port = port
        self._script = script

    def __getattr__(self, name):
        method = getattr(self._port, name)
        if name == "close" or not callable(method):
            return method
        if name == "scan" and method("") is self._port:  # no call of its own
            return lambda _: self

        def call(*arguments, **options):
            return self._script.run(" ".join([name, *map(str, arguments[:1])]), lambda: method(*arguments, **options))

        return call
