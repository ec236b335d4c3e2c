"""A signal may come at any moment, also while the main thread begins to wait for it."""

from __future__ import annotations

import signal

import pytest

from mirror_engine.cli.signals import Stopping


@pytest.mark.timeout(20)
def test_a_signal_in_the_midst_of_a_wait_is_not_lost() -> None:
    with Stopping() as stopping:
        with stopping.stop._cond:  # what `wait` holds while it looks whether it has to wait
            signal.raise_signal(signal.SIGTERM)
        assert stopping.stop.wait(10)
        assert not stopping.interrupted
