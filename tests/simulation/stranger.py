"""Another program that writes to the same Delta tables, and tidies up as it likes."""

from __future__ import annotations

from dataclasses import replace

from mirror_engine.errors import TableDamaged
from mirror_engine.tables.log import segments
from simulation.tables import snapshot_of


class Stranger:
    """Appends, deletes, compacts and cleans up logs now and then."""

    def __init__(self, world, chance):
        self.world, self.chance = world, chance

    def live(self):
        while self.world.is_landing:
            self.world.hub.sleep(self.chance.choice([3.0, 20.0, 60.0]))
            logs = self.world.tables.logs
            if not logs or not self.world.is_landing:
                continue
            table = self.chance.choice(sorted(logs))
            act = self.chance.choice(["append", "delete", "compact", "compact", "clean up", "clean up"])
            self.world.hub.step(f"stranger: {act} {table}")
            if log := logs.get(table):
                getattr(self, f"_{act.replace(' ', '_')}")(log)

    def _append(self, log):
        rows = log.commits[-1].rows
        if rows:
            self._change_rows(log, (*rows, dict(rows[0])))

    def _delete(self, log):
        rows = log.commits[-1].rows
        if rows:
            self._change_rows(log, rows[1:])

    def _change_rows(self, log, rows):
        last = log.commits[-1]
        log.commits.append(replace(last, rows=tuple(rows), metadata="", operation="WRITE", changes=True, is_ours=False))
        log.durable = log.version
        self.world.judge.foreign_rows(log)
        self.world.reached["foreign rows"] += 1

    def _compact(self, log):
        last = log.commits[-1]
        log.commits.append(replace(last, metadata="", operation="OPTIMIZE", changes=False, is_ours=False))
        log.durable = log.version
        self.world.reached["foreign compaction"] += 1

    def _clean_up(self, log):
        """Checkpoint, and delete all commits before: only where the ledger knows what they applied, and stays."""
        if self.world.is_store:  # another engine may take over, and has none
            return
        head = log.newest_record(log.version)[0]
        known = [machine.knows(head) for machine in self.world.machines] if head else []
        if known and all(known):
            self._compact(log)
            log.checkpoint = log.first = log.version
            self.world.reached["foreign log clean-up"] += 1


def needs_ledger(log):
    """Whether a log alone does not say any more what was applied."""
    found = snapshot_of(log)
    if found.record is None:
        return True
    try:
        segments.applied_since(found, None, log.segment, log.records)
    except TableDamaged:
        return True
    return False
