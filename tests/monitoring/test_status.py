"""Status of a table: its lag, the file it waits for, and the generation it speaks of (LZ-9.7)."""

from __future__ import annotations

import os
import shutil

from shop import Shop, name, row


def test_lag_is_the_age_of_the_oldest_file_that_is_not_in_the_table(tmp_path):
    shop = Shop(tmp_path)
    table = shop.orders()

    def land(age_seconds):
        path = shop.publisher / table.insert(row(1))
        os.utime(path, (shop.now - age_seconds,) * 2)

    land(-30)  # the publisher's clock is ahead
    assert shop.status().lag_seconds == 0
    shop.sync()
    assert shop.status().lag_seconds == 0
    land(30)
    land(40)
    assert shop.status().lag_seconds == 40


def test_files_after_a_gap_and_behind_a_halt_name_what_they_wait_for(tmp_path):
    shop = Shop(tmp_path)
    table = shop.orders()
    for _ in range(2):
        table.insert(row(1))
    table.skip_numbers()
    table.insert(row(2))
    found = shop.status()
    assert (found.state.code, found.blocked_by) == ("loading", f"Orders/{name(3)}")
    assert [file.reason for file in found.pending_files] == [*["ready for the next cycle"] * 2, f"{name(3)} is missing"]
    table.land(b"", name=name(3))
    shop.sync()
    found = shop.status()
    assert [(file.path, file.state) for file in found.files[:2]] == [(name(3), "rejected"), (name(4), "pending")]
    assert (found.blocked_by, found.next_files) == (f"Orders/{name(3)}", {"": name(3)})  # to be replaced
    assert found.pending_files[1].reason == f"the table is halted at Orders/{name(3)}"


def test_files_of_an_unconfigured_folder_are_pending(tmp_path):
    shop = Shop(tmp_path)
    shop.publisher.folder("Orders").insert(row(1))
    found = shop.status()
    assert (found.blocked_by, found.pending_files[0].reason) == ("Orders", "the folder has no usable _metadata.json")


def test_a_recreated_folder_shows_nothing_of_its_former_generation(tmp_path):
    shop = Shop(tmp_path)
    shop.orders().insert(row(1))
    shop.sync()
    shutil.rmtree(shop.publisher / "Orders")
    shop.orders().insert(row(2))
    found = shop.status()
    assert (found.watermarks, found.rows_processed, found.delta_version) == ({}, 0, None)
    assert [(file.path, file.state) for file in found.files] == [(name(1), "pending")]
