"""What goes wrong, as the seed draws it: calls that are refused, unanswered or late, crashes and pauses."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from mirror_engine.errors import StorageUnavailable
from simulation.hub import Crashed


class Fault(StrEnum):
    REFUSED = "refused"  # nothing happened
    LOST_ANSWER = "answer lost"  # it was done, and the caller sees a failure
    LATE = "late"  # others do much meanwhile
    CRASH_BEFORE = "crash before"
    CRASH_AFTER = "crash after"
    PAUSE = "pause"  # the process stops for longer than a lease lasts


EFFECTS, EFFECT_TIMES = frozenset({"copy", "move", "delete", "commit", "sync", "lease"}), 5


@dataclass
class Weather:
    """How often each fault comes, of all calls; a world has its own."""

    rates: dict
    is_calm: bool = False

    @classmethod
    def drawn(cls, chance):
        """Some worlds have no fault of a kind, others many: a storm hides what a single fault shows."""
        often = [0, 0, 0.001, 0.004, 0.02]
        rates = {fault: chance.choice(often) for fault in (Fault.REFUSED, Fault.LOST_ANSWER, Fault.LATE)}
        crash = chance.choice([0, 0.0005, 0.002, 0.006])
        rates |= {Fault.CRASH_BEFORE: crash / 2, Fault.CRASH_AFTER: crash / 2}
        rates[Fault.PAUSE] = chance.choice([0, 0, 0.0005])
        return cls(rates)

    def drawn_for_a_call(self, chance, among=tuple(Fault)):
        if self.is_calm:
            return None
        found = chance.random()
        for fault in among:
            found -= self.rates[fault]
            if found < 0:
                return fault
        return None


class Port:
    """How one process calls what is outside of it: each call is a step, at which others may come first."""

    def __init__(self, world, machine, process):
        self._world, self.machine, self.process = world, machine, process
        self._hub, self._weather = world.hub, world.weather
        self.chance = world.chance.random
        self.default_schema = world.config.delta_default_schema

    @property
    def now(self):
        return self._hub.now

    def takes(self, seconds):
        """Let the time of a long call pass, in which others go on."""
        self._hub.sleep(seconds)

    def step(self, words):
        self._hub.step(words)
        if self._weather.drawn_for_a_call(self._world.chance, (Fault.CRASH_BEFORE,)):
            self.crash(Fault.CRASH_BEFORE, words)

    def call(self, words, work):
        """Make a call, with what goes wrong about it."""
        self._hub.step(words)
        if self._world.refuses(words):
            raise StorageUnavailable(f"{words}: refused for days")
        kind = words.partition(" ")[0]
        fault = self._drawn(kind)
        if fault is None:
            return work()
        if fault is not Fault.CRASH_BEFORE and fault is not Fault.CRASH_AFTER:
            self.reached(f"{fault.value}: {kind}")
            self._hub.trace(f"  {fault.value}")
        match fault:
            case Fault.REFUSED:
                raise StorageUnavailable(f"{words}: refused")
            case Fault.LATE:
                self._hub.sleep(self._world.chance.choice([0.5, 5.0, 40.0]))
            case Fault.PAUSE:
                self._world.stops_at(self.process, words)
                self._hub.sleep(0.001)
            case Fault.CRASH_BEFORE:
                self.crash(fault, kind)
        result = work()
        if fault is Fault.LOST_ANSWER:
            raise StorageUnavailable(f"{words}: answer lost")
        if fault is Fault.CRASH_AFTER:
            self.crash(fault, kind)
        return result

    def _drawn(self, kind):
        chance, drawn = self._world.chance, self._weather.drawn_for_a_call
        found = drawn(chance)
        for _ in range(EFFECT_TIMES if kind in EFFECTS else 0):  # there these tell most
            found = found or drawn(chance, (Fault.PAUSE, Fault.LOST_ANSWER, Fault.CRASH_BEFORE, Fault.CRASH_AFTER))
        return found

    def fails(self, words, *among):
        """Fail at once, perhaps: nobody else runs meanwhile, because a plain lock is held."""
        if self.process.is_dead:
            raise Crashed
        fault = self._weather.drawn_for_a_call(self._world.chance, among)
        if fault is Fault.REFUSED:
            self.reached(f"{fault.value}: {words}")
            raise StorageUnavailable(f"{words}: refused")
        if fault:
            self.crash(fault, words)

    def crash(self, fault, words):
        self.reached(f"{fault.value}: {words.partition(' ')[0]}")
        self._hub.trace(f"  {fault.value}")
        self.machine.kill()
        raise Crashed

    def reached(self, what):
        self._world.reached[what] += 1
