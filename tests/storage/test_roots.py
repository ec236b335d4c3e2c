"""Which folders are a ROOT, and which are only near one."""

from __future__ import annotations

import pytest

from mirror_engine.errors import UsageError
from mirror_engine.mirror import Mirror
from mirror_engine.storage.roots import check_place, check_root

FOLDERS = (
    "shop/Files/LandingZone/Items",
    "shop/Tables",
    "old/LandingZone/Items",
    "home/LandingZone/shop/Tables",
    "a/b",
)


@pytest.mark.parametrize(
    ("folder", "found"),
    [
        ("shop", ""),
        ("old", ""),  # the older layout (LZ-1.1)
        ("home/LandingZone/shop", ""),  # any folder can have that name
        ("a/new", ""),
        ("shop/Files", "a folder of a ROOT"),
        ("shop/Tables", "a folder of a ROOT"),
        ("shop/new", "a folder of a ROOT"),
        ("shop/Files/LandingZone", "a landing zone"),
        ("shop/Files/LandingZone/Items", "a part of a landing zone"),
        ("old/LandingZone", "a landing zone"),
    ],
)
def test_a_folder_of_a_root_is_rejected_by_its_place(tmp_path, folder, found):
    for each in FOLDERS:
        (tmp_path / each).mkdir(parents=True)
    if not found:
        check_place(tmp_path / folder)
        return
    with pytest.raises(UsageError, match=f"is {found}, not a ROOT") as error:
        check_place(tmp_path / folder)
    assert error.value.help == f"its ROOT is {tmp_path / folder.partition('/')[0]}"
    if (tmp_path / folder).is_dir():
        with pytest.raises(UsageError, match=f"is {found}, not a ROOT"):
            Mirror(tmp_path / folder).sync()


def test_a_folder_without_a_mark_is_no_root_unless_it_may_become_one(tmp_path):
    check_root(tmp_path, may_be_empty=True)
    for is_allowed in (False, True):
        (tmp_path / "file").touch()
        with pytest.raises(UsageError, match="contains no landing zone"):
            check_root(tmp_path, may_be_empty=is_allowed)
