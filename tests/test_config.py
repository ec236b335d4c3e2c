"""Options from three sources, with every mistake reported at once."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror_engine import Mirror
from mirror_engine.cli import exits
from mirror_engine.config import Config, flag_of, load, options, read_effective, write_effective
from mirror_engine.errors import ConfigError, StorageUnavailable
from mirror_engine.landing_zone.layout import OPTIONS
from mirror_engine.tables.dry_run.memory import MemoryDeltaWriter

TEXT = st.text(st.sampled_from("0159.-+ekgMB_/\\x \n²"), max_size=12)


def problems(error):
    return [line.strip() for line in error.message.splitlines()[1:]]


def test_without_any_source_the_defaults_hold(tmp_path):
    assert load(tmp_path, {}, {"MIRROR_ENGINE_CACHE": "/somewhere"}) == Config()  # that variable is no option


def test_flags_win_over_variables_and_variables_over_the_file(tmp_path):
    (tmp_path / "mirror-engine.toml").write_text("workers = 3\nvacuum_retention = 4\nmax_batch_files = 5\n")
    variables = {"MIRROR_ENGINE_WORKERS": "6", "MIRROR_ENGINE_VACUUM_RETENTION": "8", "HOME": "/"}
    config = load(tmp_path, {"workers": "9"}, variables)
    assert (config.workers, config.vacuum_retention_days, config.max_batch_files) == (9, 8, 5)


def test_a_named_file_replaces_the_one_in_root(tmp_path):
    (tmp_path / "mirror-engine.toml").write_text("workers = 3\nstrict = true\n")
    (tmp_path / "other.toml").write_text("workers = 4\n")
    assert load(tmp_path, {}, {}, tmp_path / "other.toml") == Config(workers=4)
    with pytest.raises(ConfigError, match="found no file"):
        load(tmp_path, {}, {}, tmp_path / "absent.toml")


def test_every_problem_of_every_source_is_reported_at_once(tmp_path):
    (tmp_path / "mirror-engine.toml").write_text('max_batch_byte = 1\nstrict = "perhaps"\n')
    variables = {"MIRROR_ENGINE_WORKERS": "0", "MIRROR_ENGINE_PONG": "1"}
    with pytest.raises(ConfigError) as caught:  # also of those that a stronger source overrides
        load(tmp_path, {"workers": "2", "vacuum_retention_days": "31", "poll_interval_seconds": "soon"}, variables)
    assert problems(caught.value) == [
        "mirror-engine.toml: max_batch_byte: unknown option, did you mean max_batch_size?",
        "mirror-engine.toml: strict: found 'perhaps', allowed true or false",
        "MIRROR_ENGINE_PONG: unknown option",
        "MIRROR_ENGINE_WORKERS: found '0', allowed a whole number from 1 to 256",
        "--vacuum-retention: found '31', allowed a whole number from 1 to 30",
        "--poll-interval: found 'soon', allowed a duration of 0.01s or more, such as 60s, 5m, 2h or 7d, or auto",
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"workers = ", r"mirror-engine\.toml: cannot be read"),
        (b"\xff\xfe", r"mirror-engine\.toml: cannot be read"),
        (b"workers = 1\nworkers = 2", r"mirror-engine\.toml: cannot be read"),
        (b"[engine]\nworkers = 1\n", "engine: unknown option"),
        (b"workers = " + b"[" * 100_000, "cannot be read"),
        (b"workers = 0x" + b"f" * 6000, "a value of type int too long to show"),
        (b"[workers]\na = 0x" + b"f" * 6000, "a value of type dict too long to show"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path, content, said):
    (tmp_path / "mirror-engine.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        load(tmp_path, {}, {})


WRITTEN = {
    "max_batch_size": {"1": 1, "256MB": 256_000_000, "1GiB": 2**30, "4k": 4096, "1.5 kb": 1500, "2m": 2**21, 77: 77},
    "poll_interval_seconds": {"60s": 60, "1.5m": 90, "2 h": 7200, "7d": 604_800, "500ms": 0.5, "9": 9, 9: 9, 0.5: 0.5},
    "vacuum_retention_days": {"3": 3, "3d": 3, 3: 3},
    "auto_maintain": {"7": 7, 7: 7, "idle": "idle", "off": "off"},
}


@pytest.mark.parametrize(("name", "written"), [(name, text) for name, texts in WRITTEN.items() for text in texts])
def test_sizes_durations_days_and_policies_are_read_as_people_write_them(tmp_path, name, written):
    assert getattr(load(tmp_path, {name: written}, {}), name) == WRITTEN[name][written]


def test_options_of_the_running_engine_win_over_file_and_variables_but_not_over_flags(tmp_path):
    (tmp_path / "mirror-engine.toml").write_text("workers = 3\n")
    running = Config(strict=True, workers=7)
    assert load(tmp_path, {}, {"MIRROR_ENGINE_STRICT": "off"}, effective=running) == running
    assert load(tmp_path, {"workers": "9"}, {}, effective=running) == Config(strict=True, workers=9)
    with pytest.raises(ConfigError):
        load(tmp_path, {}, {"MIRROR_ENGINE_STRICT": "perhaps"}, effective=running)


NOT_ALLOWED = {
    "max_batch_size": ["0", "1 XB", "-1", "9" * 400, True, 1.5],
    "workers": [True, "1.0", 1.0, "²"],
    "poll_interval_seconds": ["nan", "inf", "0", "1 year"],
    "vacuum_retention_days": ["1h"],
    "auto_maintain": ["0", 0, "on", True, 1.5],
    "delete_processed_after_seconds": [-1, False],
    "cleanup": ["Ready"],
    "missing_metadata": [1],
    "strict": [1],
    "driver_memory": ["2", "2g -Dx=y"],
    "default_schema": ["", "..", "a/b", "a\\b", "_x", "x\n", "x "],
    "delta_jars_dir": ["a\0b", ["a"]],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in NOT_ALLOWED.items() for value in values])
def test_a_value_outside_what_is_allowed_is_rejected(tmp_path, name, value):
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, {name: value}, {})
    assert problems(caught.value) == [f"{flag_of(name)}: found {value!r}, allowed {options()[name].kind.allowed}"]


@pytest.mark.parametrize("name", ["dbo", "none", "Größe 1", "a.b", "x"])
def test_a_plain_folder_name_is_a_default_schema(name):
    assert Config(default_schema=name).delta_default_schema == ("" if name == "none" else name)


def test_a_config_made_in_python_is_held_to_the_same_rules():
    wrong = {"workers": 0, "max_batch_size": "1MB", "strict": "true"}
    with pytest.raises(ConfigError) as caught:
        Config(**wrong)
    assert len(problems(caught.value)) == 3


def test_every_option_says_what_it_does_and_its_default_is_allowed():
    assert list(options()) == [field.name for field in fields(Config)]
    for name, option in options().items():
        assert option.about.endswith("."), name
        assert option.kind.allowed, name
        assert option.kind.metavar, name
        assert option.topic, name


@given(st.dictionaries(st.sampled_from([*options(), "worker", "x"]), TEXT | st.floats() | st.booleans()))
def test_no_value_whatever_escapes_as_another_error(flags):
    names = [field.name for field in fields(Config)]
    try:
        config = Config(**{name: value for name, value in flags.items() if name in names})
    except ConfigError:
        return
    assert config


def test_effective_options_are_read_as_they_were_written(tmp_path):
    path = tmp_path / "options.json"
    config = Config(workers=7, drop_delay_seconds=1.5, driver_batch_limit="auto", auto_maintain=3, strict=True)
    write_effective(path, config)
    assert read_effective(path) == config
    before = path.stat()
    write_effective(path, config)
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert [file.name for file in tmp_path.iterdir()] == ["options.json"]
    with pytest.raises(StorageUnavailable):
        write_effective(tmp_path / "none" / "options.json", config)


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"workers": 0}', b'{"of_another_release": 1}', b"\xff"])
def test_effective_options_that_cannot_be_used_are_none(tmp_path, content):
    path = tmp_path / "options.json"
    if content is not None:
        path.write_bytes(content)
    assert read_effective(path) is None


def test_an_engine_writes_its_effective_options_at_start(tmp_path):
    (tmp_path / "Files/LandingZone").mkdir(parents=True)
    config = Config(workers=3)
    Mirror(tmp_path, config, writer=MemoryDeltaWriter()).sync()
    assert read_effective(tmp_path / OPTIONS) == config


# --- options without effect

ARROW, SPARK = {"merge_engine": "arrow"}, {"merge_engine": "spark"}
CLUSTER = {"spark_master": "spark://host:7077"}
IDLE = [
    ({**ARROW, "spark_master": "spark://host:7077"}, "--spark-master: the merge engine `arrow` does not use Spark"),
    ({**ARROW, "spark_profile": "ci"}, "--spark-profile: the merge engine"),
    ({**ARROW, "driver_memory": "4g"}, "--driver-memory: the merge engine"),
    ({**ARROW, "delta_jars_dir": "/jars"}, "--delta-jars-dir: the merge engine"),
    ({**ARROW, "driver_batch_limit": "1GiB"}, "--driver-batch-limit: the merge engine"),
    ({**SPARK, "key_index_size": "1GiB"}, "--key-index-size: the merge engine `spark` uses no index of keys"),
    ({**CLUSTER, "driver_memory": "4g"}, "--driver-memory: on a cluster"),
    ({"spark_profile": "cluster", "driver_memory": "4g"}, "--driver-memory: on a cluster"),
    ({**CLUSTER, "spark_profile": "ci"}, "--spark-profile: on a cluster"),
    ({"cleanup": "off", "delete_processed_after_seconds": "1d"}, "--delete-processed-after: with cleanup `off`"),
]


@pytest.mark.parametrize(("flags", "said"), IDLE)
def test_option_without_effect_is_refused(tmp_path, flags, said):
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        load(tmp_path, flags, {})
    assert exits.of_error(caught.value) == 2
    *others, last = flags
    read = {name: options()[name].kind.read(value) for name, value in flags.items()}
    with pytest.raises(ConfigError, match=re.escape(f"Config({last}=…): {said.partition(': ')[2]}")):
        Config(**read)
    assert Config(**{name: read[name] for name in others}) == load(tmp_path, {name: flags[name] for name in others}, {})


def test_flag_without_effect_is_refused_though_it_names_the_default(tmp_path):
    with pytest.raises(ConfigError, match="--driver-memory"):
        load(tmp_path, {**ARROW, "driver_memory": "2g"}, {})


def test_option_without_effect_names_the_source_that_has_it(tmp_path):
    (tmp_path / "mirror-engine.toml").write_text('merge_engine = "arrow"\nspark_profile = "ci"\n')
    with pytest.raises(ConfigError, match=re.escape("mirror-engine.toml: spark_profile: the merge engine")):
        load(tmp_path, {}, {})
    with pytest.raises(ConfigError, match="MIRROR_ENGINE_DRIVER_MEMORY: the merge engine"):
        load(tmp_path, {}, {"MIRROR_ENGINE_DRIVER_MEMORY": "4g", "MIRROR_ENGINE_SPARK_PROFILE": "local"})


def test_stronger_source_may_make_a_weaker_one_s_options_idle(tmp_path):
    (tmp_path / "mirror-engine.toml").write_text('driver_memory = "4g"\nspark_profile = "ci"\n')
    assert load(tmp_path, ARROW, {}) == Config(merge_engine="arrow")
    assert load(tmp_path, {}, {"MIRROR_ENGINE_MERGE_ENGINE": "arrow"}) == Config(merge_engine="arrow")
    assert load(tmp_path, {}, {}) == Config(driver_memory="4g", spark_profile="ci")


def test_options_of_the_last_engine_are_the_weakest(tmp_path):
    assert load(tmp_path, {}, {}, last=ARROW) == Config(merge_engine="arrow")
    assert load(tmp_path, {}, {"MIRROR_ENGINE_MERGE_ENGINE": "spark"}, last=ARROW) == Config(merge_engine="spark")
    with pytest.raises(ConfigError, match="--driver-memory: the merge engine `arrow`"):
        load(tmp_path, {"driver_memory": "4g"}, {}, last=ARROW)
