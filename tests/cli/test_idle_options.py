"""An option that cannot take effect is refused, with the reason, before anything is done."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mirror_engine import Mirror
from mirror_engine.config import Config, write_effective
from mirror_engine.errors import ConfigError
from mirror_engine.landing_zone.layout import ENGINE, OPTIONS
from mirror_engine.monitoring.maintenance_results import MaintenanceReport
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter
from mirror_engine.tables.spark import choice


@pytest.fixture
def without_pyspark(monkeypatch):
    monkeypatch.setattr(choice, "find_spec", lambda _: None)


IDLE = {
    "sync {root} --merge-engine arrow --driver-memory 4g": "--driver-memory: the merge engine `arrow`",
    "sync {root} --merge-engine arrow --driver-memory 2g": "--driver-memory: the merge engine `arrow`",
    "sync {root} --poll-interval 5s": "no such option '--poll-interval'",
    "sync {root} --auto-maintain idle": "no such option '--auto-maintain'",
    "run {root} --cleanup off --delete-processed-after 1d": "--delete-processed-after: with cleanup `off`",
    "run {root} --spark-master yarn --driver-memory 4g": "--driver-memory: on a cluster",
    "run {root} --merge-engine spark --key-index-size none": "--key-index-size: the merge engine `spark`",
    "maintain -C {root} --merge-engine arrow --spark-master yarn": "--spark-master: the merge engine `arrow`",
    "doctor {root} --merge-engine arrow --delta-jars-dir jars": "--delta-jars-dir: the merge engine `arrow`",
    "status {root} --interval 3s": "--interval: no effect, without --watch",
    "status {root} --max-download 1GiB": "--max-download: no effect, a folder on this machine is not downloaded",
    "show Items -C {root} --max-download 1GiB": "--max-download: no effect, a folder on this machine is not downloaded",
    "validate {root} --max-download 1GiB": "--max-download: no effect, a folder on this machine is not downloaded",
    "compare {root} --max-download 1GiB": "--max-download: no effect, a folder on this machine is not downloaded",
    "validate {root} --watch --check-tie-order 2": "--check-tie-order: no effect, --watch",
    "validate {root} --write-baseline b.json --fail-on warning": "--fail-on: no effect, --write-baseline",
    "validate {root} --write-baseline b.json --ignore ME016": "--ignore: no effect, --write-baseline",
    "emulator start {root}/s --storage-only --strict": "--strict: no effect, with --storage-only",
    "emulator start {root}/s --storage-only --on-restart resume": "--on-restart: no effect, with --storage-only",
    "emulator exec {root}/s --storage-only --wait 3s -- true": "--wait: no effect, with --storage-only",
    "emulator start {root}/s --allow-remote": "--allow-remote: no effect, --host 127.0.0.1 is loopback",
    "emulator start {root}/s --merge-engine arrow --spark-master yarn": "--spark-master: the merge engine `arrow`",
}


@pytest.mark.parametrize(("line", "said"), IDLE.items())
def test_option_without_effect_ends_with_2(sales, cli, line, said):
    printed = cli(*(word.format(root=sales.root) for word in line.split()))
    assert (printed.code, printed.out) == (2, "")
    assert said in printed.err
    assert not (sales.root / ENGINE).exists()
    assert not (sales.root / "s").exists()


def test_token_and_its_file_are_one_too_many(tmp_path, cli):
    (tmp_path / "token").write_text("0123456789abcdef")
    printed = cli(
        "emulator", "start", tmp_path / "s", "--token", "0123456789abcdef", "--token-file", tmp_path / "token"
    )
    assert (printed.code, "--token: no effect" in printed.err) == (2, True)


OF_SPARK = [
    ("spark_master", "spark://nohost:7077", "sync"),
    ("spark_profile", "ci", "run"),
    ("driver_memory", "4g", "maintain"),
    ("delta_jars_dir", "/jars", "sync"),
    ("driver_batch_limit", 5, "sync"),
]


@pytest.mark.usefixtures("without_pyspark")
@pytest.mark.parametrize(("name", "value", "work"), OF_SPARK)
def test_spark_option_without_pyspark_is_refused(sales, name, value, work):
    with Mirror(sales.root, Config(**{name: value})) as mirror:
        mirror.status()  # needs none
        with pytest.raises(ConfigError, match="needs PySpark, which is not installed"):
            mirror.run(None) if work == "run" else getattr(mirror, work)()
    assert not (sales.root / ENGINE).exists()


@pytest.mark.usefixtures("without_pyspark")
def test_spark_option_without_pyspark_is_refused_where_it_is_given(sales, cli, monkeypatch):
    for words in (["emulator", "start", sales.root / "s"], ["doctor", sales.root]):
        printed = cli(*words, "--driver-memory", "4g")
        assert "--driver-memory: it needs PySpark" in printed.err
        assert printed.code == 2
    monkeypatch.setenv("MIRROR_ENGINE_SPARK_MASTER", "local[2]")
    printed = cli("emulator", "start", sales.root / "s")
    assert "  MIRROR_ENGINE_SPARK_MASTER: it needs PySpark" in printed.err
    assert printed.code == 2
    monkeypatch.delenv("MIRROR_ENGINE_SPARK_MASTER")
    monkeypatch.delenv("MIRROR_ENGINE_SPARK_PROFILE", raising=False)
    (sales.root / "mirror-engine.toml").write_text('spark_profile = "ci"\n')
    printed = cli("doctor", sales.root)
    assert "mirror-engine.toml: spark_profile: it needs PySpark" in printed.err
    with Mirror(sales.root, Config(driver_memory="4g")) as mirror, pytest.raises(ConfigError) as refused:
        mirror.sync()
    assert "  Config(driver_memory=…): it needs PySpark" in str(refused.value)


def test_option_of_a_given_writer_is_not_judged(sales):
    with Mirror(sales.root, Config(key_index_size=5), writer=MemoryDeltaWriter()) as mirror:
        mirror.sync()


SESSION = SimpleNamespace(sparkContext=SimpleNamespace(master="local[2]"))


def test_option_beside_a_given_session_is_refused_at_once(sales):
    for options in ({"spark_master": "yarn"}, {"driver_memory": "4g"}, {"spark_profile": "ci"}):
        with pytest.raises(ConfigError, match="the given Spark session is used as it is"):
            Mirror(sales.root, Config(**options), spark=SESSION)
    with pytest.raises(ConfigError, match="Mirror\\(spark=…\\): the merge engine `arrow` does not use Spark"):
        Mirror(sales.root, Config(merge_engine="arrow"), spark=SESSION)
    Mirror(sales.root, Config(driver_batch_limit=5), spark=SESSION)


def test_key_index_is_refused_where_spark_merges_because_it_is_installed(sales):
    pytest.importorskip("pyspark", reason="the extra `spark` is not installed: `make test` has it")
    with Mirror(sales.root, Config(key_index_size=5)) as mirror, pytest.raises(ConfigError, match="uses no index"):
        mirror.sync()


@pytest.mark.parametrize(("flags", "engine"), [([], "arrow"), (["--merge-engine", "spark"], "spark")])
def test_maintain_takes_the_engine_that_root_had_last(sales, cli, monkeypatch, flags, engine):
    (sales.root / ENGINE).mkdir()
    write_effective(sales.root / OPTIONS, Config(merge_engine="arrow", workers=9))
    chosen = []
    monkeypatch.setattr(Mirror, "maintain", lambda self, *_: chosen.append(self.config) or MaintenanceReport([]))
    assert cli("maintain", "-C", sales.root, *flags).code == 0
    assert [(config.merge_engine, config.workers) for config in chosen] == [(engine, 4)]
    printed = cli("maintain", "-C", sales.root, "--driver-memory", "4g")
    assert (printed.code, "--driver-memory: the merge engine `arrow`" in printed.err) == (2, True)
