"""Who holds a ROOT on this machine, whatever becomes of the locked file."""

from __future__ import annotations

import shutil
import threading

import pytest

from mirror_engine.engine.lock import is_locked, lock_root
from mirror_engine.errors import RootLocked, StorageUnavailable
from mirror_engine.landing_zone.layout import LOCK


@pytest.fixture
def lockable_root(tmp_path):
    (tmp_path / "shop/Files").mkdir(parents=True)
    return tmp_path / "shop"


def remove_lock(root):
    (root / LOCK).unlink()


def remove_folder(root):
    shutil.rmtree((root / LOCK).parent)


@pytest.mark.parametrize("remove", [remove_lock, remove_folder])
def test_removed_lock_is_held_anew(lockable_root, remove):
    with lock_root(lockable_root) as check:
        check()
        remove(lockable_root)
        check()
        assert is_locked(lockable_root)
        check()
        with pytest.raises(RootLocked, match="another engine is running here"), lock_root(lockable_root):
            pass
    assert not is_locked(lockable_root)


def test_removed_lock_that_another_engine_took_ends_the_first(lockable_root):
    with lock_root(lockable_root) as check:
        remove_lock(lockable_root)
        with lock_root(lockable_root) as other:
            with pytest.raises(RootLocked, match="another engine is running here"):
                check()
            other()
        check()
    assert not is_locked(lockable_root)


def test_removed_lock_is_held_anew_from_any_thread(lockable_root):
    with lock_root(lockable_root) as check:
        remove_lock(lockable_root)
        thread = threading.Thread(target=check)
        thread.start()
        thread.join()
        assert is_locked(lockable_root)
    assert not is_locked(lockable_root)


@pytest.mark.parametrize("in_its_place", [False, True])
def test_moved_root_is_not_made_again(lockable_root, in_its_place):
    """Nor is another folder taken for it."""
    with lock_root(lockable_root) as check:
        moved = lockable_root.rename(lockable_root.with_name("moved"))
        if in_its_place:
            lockable_root.mkdir()
        with pytest.raises(StorageUnavailable, match="was moved away"):
            check()
        assert lockable_root.exists() == in_its_place
        moved.rename(lockable_root)
        check()
