"""Threads that run one at a time, in the order of a seed, on a clock that moves when all of them wait.

Each task is a real thread, but only the one that holds the baton runs. It passes the baton at a `step`: a call of
storage, tables, ledger or lease. A process is a group of tasks that dies as a whole.
"""

from __future__ import annotations

import itertools
import math
import queue
import threading
from collections import deque
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, field

from mirror_engine.threads import Threads

STEP_SECONDS = 0.002  # that a call takes
HANG_SECONDS = 120.0  # of real time: a task waits for something that the hub does not know


class Crashed(BaseException):
    """The process of this task is gone."""


class Deadlock(AssertionError):
    """Every task waits for another."""


@dataclass(eq=False)
class Process:
    """Tasks that die together. `paused_until`: none of them runs before that time, as after SIGSTOP."""

    name: str
    started: float = 0.0
    is_dead: bool = False
    paused_until: float = -math.inf
    tasks: list = field(default_factory=list)


@dataclass(eq=False)
class Task:
    """One thread. It is runnable where `ready` is None or true, or its `deadline` is over."""

    process: Process
    name: str
    weight: float
    baton: threading.Lock = field(default_factory=threading.Lock)
    ready: object = None
    deadline: float = math.inf
    is_over: bool = False


class Hub(Threads):
    """The scheduler of a simulated world.

    Args:
        chance: the seed's random numbers.
        trace: called with each step's words.

    Attributes:
        now: monotonic seconds.
        steps: calls so far.
        failure: the first error of a task, after which none goes on.
    """

    def __init__(self, chance, trace=lambda _: None):
        self.chance, self.trace = chance, trace
        self.now, self.steps, self.switches = 0.0, 0, 0
        self.failure = None
        self.current = None
        self.switch_rate = chance.choice([0.1, 0.3, 0.6])
        self.before_step = lambda _: None  # looks after each step of a living process
        self._tasks = []
        self._over = threading.Event()
        self._numbers = itertools.count(1)

    def run(self, process, work, name):
        """Run a first task, and all that it starts, until none is left; raises what one of them raised."""
        first = self._make(process, work, name)
        self.current = first
        first.baton.release()
        while not self._over.wait(HANG_SECONDS):
            before, self._seen = getattr(self, "_seen", -1), self.steps
            if before == self.steps:
                raise Deadlock(f"{self.current.name} waits for something real")
        if self.failure:
            raise self.failure

    def start(self, work, name, process=None):
        """Start a task, by default in the process of the current one."""
        task = self._make(process or self.current.process, work, name)
        return _Joinable(self, task)

    def pool(self, workers, name):
        return _Pool(self, workers, name)

    def event(self):
        return _Event(self)

    def lock(self):
        return _Lock(self)

    def queue(self):
        return _Queue(self)

    def step(self, words):
        """Let others run, perhaps, before the current task makes a call."""
        task = self.current
        if task.process.is_dead:
            raise Crashed
        self.steps += 1
        self.now += STEP_SECONDS
        self.trace(f"{self.steps} {self.now:.3f} {task.name} {words}")
        self.before_step(words)
        if task.process.is_dead:
            raise Crashed
        if self.chance.random() < self.switch_rate:
            self._pass_on(task)

    def wait(self, ready, seconds=None):
        """Wait until `ready()`, or so many seconds; returns whether it is."""
        task = self.current
        if task.process.is_dead:
            raise Crashed
        if not ready() and (seconds is None or seconds > 0):
            task.ready, task.deadline = ready, math.inf if seconds is None else self.now + seconds
            self._pass_on(task)
            task.ready, task.deadline = None, math.inf
        return ready()

    def sleep(self, seconds):
        """Let so much time pass."""
        self.wait(lambda: False, seconds)

    def kill(self, process):
        """End a process at once; its tasks unwind without a further call."""
        process.is_dead = True
        process.paused_until = -math.inf

    def unwind(self, process):
        """Wait until the tasks of a dead process are gone."""
        self.wait(lambda: all(task.is_over for task in process.tasks))

    def _make(self, process, work, name):
        weight = self.chance.choice([1.0, 1.0, 1.0, 0.1, 0.02])
        task = Task(process, f"{process.name}/{name}-{next(self._numbers)}", weight)
        task.baton.acquire()
        self._tasks.append(task)
        process.tasks.append(task)

        def run():
            task.baton.acquire()
            try:
                if not process.is_dead:
                    work()
            except Crashed:
                pass
            except BaseException as error:  # noqa: BLE001 - `run` raises it
                self.fail(error)
            task.is_over = True
            self._tasks.remove(task)
            process.tasks.remove(task)
            if self._tasks:
                self._hand(self._next())
            else:
                self._over.set()

        threading.Thread(target=run, name=task.name, daemon=True).start()
        return task

    def fail(self, error):
        """End the world: this is what is wrong."""
        self.failure = self.failure or error
        for task in self._tasks:
            self.kill(task.process)

    def _pass_on(self, task):
        following = self._next()
        if following is not task:
            self.switches += 1
            self._hand(following)
            task.baton.acquire()
        if task.process.is_dead:
            raise Crashed

    def _hand(self, task):
        self.current = task
        task.baton.release()

    def _next(self):
        while True:
            now = self.now
            ready = []
            for task in self._tasks:
                process = task.process
                if process.is_dead or (
                    process.paused_until <= now and (task.ready is None or task.deadline <= now or task.ready())
                ):
                    ready.append(task)
            if len(ready) == 1:
                return ready[0]
            if ready:
                return self.chance.choices(ready, [task.weight for task in ready])[0]
            later = min(max(task.deadline, task.process.paused_until) for task in self._tasks)
            paused = [task.process.paused_until for task in self._tasks if task.process.paused_until > now]
            later = min([later, *paused])
            if later == math.inf:
                self.fail(Deadlock(", ".join(task.name for task in self._tasks)))
            else:
                self.now = later


class _Joinable:
    def __init__(self, hub, task):
        self._hub, self._task = hub, task

    def join(self):
        self._hub.wait(lambda: self._task.is_over)

    def is_alive(self):
        return not self._task.is_over


class _Event:
    def __init__(self, hub):
        self._hub, self._is_set = hub, False

    def is_set(self):
        return self._is_set

    def set(self):
        self._is_set = True

    def clear(self):
        self._is_set = False

    def wait(self, timeout=None):
        return self._hub.wait(self.is_set, timeout)


class _Lock:
    def __init__(self, hub):
        self._hub, self._owner = hub, None

    def __enter__(self):
        self._hub.wait(lambda: self._owner is None)
        self._owner = self._hub.current
        return True

    def __exit__(self, *_):
        self._owner = None


class _Queue:
    def __init__(self, hub):
        self._hub, self._items = hub, deque()

    def put(self, item):
        self._items.append(item)

    def get(self, timeout=None):
        if not self._hub.wait(lambda: bool(self._items), timeout):
            raise queue.Empty
        return self._items.popleft()


class _Pool(Executor):
    def __init__(self, hub, workers, name):
        self._hub, self._most, self._name = hub, workers, name
        self._waiting, self._workers, self._idle, self._is_closed = deque(), [], 0, False

    def submit(self, work, /, *args, **kwargs):
        future = _Future(self._hub)
        self._waiting.append((future, lambda: work(*args, **kwargs)))
        if self._idle < len(self._waiting) and len(self._workers) < self._most:
            self._workers.append(self._hub.start(self._work, self._name))
        return future

    def shutdown(self, wait=True, *, cancel_futures=False):  # noqa: FBT002 - as its base class has it
        self._is_closed = True
        while cancel_futures and self._waiting:
            self._waiting.popleft()[0].cancel()
        for worker in self._workers if wait else ():
            worker.join()

    def _work(self):
        while True:
            self._idle += 1
            self._hub.wait(lambda: self._waiting or self._is_closed)
            self._idle -= 1
            if not self._waiting:
                return
            future, work = self._waiting.popleft()
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = work()
            except Crashed:
                raise
            except BaseException as error:  # noqa: BLE001 - raised by `result`
                future.set_exception(error)
            else:
                future.set_result(result)


class _Future(Future):
    def __init__(self, hub):
        super().__init__()
        self._hub = hub

    def result(self, timeout=None):
        self._hub.wait(self.done, timeout)
        with suppress(TimeoutError):
            return super().result(0)
        raise TimeoutError
