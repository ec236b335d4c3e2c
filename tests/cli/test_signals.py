"""A signal may come at any moment, also while the main thread begins to wait for it."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from mirror_engine.cli.exits import Stopping


@pytest.mark.timeout(20)
def test_a_signal_in_the_midst_of_a_wait_is_not_lost():
    with Stopping() as stopping:
        with stopping.stop._cond:  # what `wait` holds while it looks whether it has to wait
            signal.raise_signal(signal.SIGTERM)
        assert stopping.stop.wait(10)
        assert not stopping.interrupted


@pytest.mark.timeout(20)
def test_a_signal_that_another_thread_takes_ends_the_wait():
    """A system may hand it to any thread; it is the main thread that has to hear of it."""

    def take():
        time.sleep(0.2)
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    with Stopping() as stopping:
        threading.Thread(target=take).start()
        stopping.wait()
    assert stopping.stop.is_set()


def test_the_second_signal_ends_the_process(monkeypatch):
    ended = []
    monkeypatch.setattr("os._exit", ended.append)
    before = signal.getsignal(signal.SIGINT)
    with Stopping() as stopping:
        signal.raise_signal(signal.SIGTERM)
        assert (stopping.stop.is_set(), stopping.interrupted, ended) == (True, False, [])
        signal.raise_signal(signal.SIGINT)
    assert ended == [130]
    assert signal.getsignal(signal.SIGINT) is before
