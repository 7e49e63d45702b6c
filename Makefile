# Everything on a fresh machine: each target makes what it needs. `make help` lists them.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST := $(BIN)/pytest
STAMP := $(VENV)/.ready
OLD_KIO := .build/kio-0.6.2/.ready
CORES := $(shell nproc 2>/dev/null || echo 2)
# One more than there are cores: tests that need processes wait for much of their time.
WORKERS ?= $(shell expr $(CORES) + 1)

.PHONY: help setup bytecode wheel compiled demo test test-pythons check format compat coverage differential bench fuzz crash soak golden clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 22

setup: $(STAMP) $(OLD_KIO)  ## create .venv with the package, all extras and the developer tools

$(STAMP): pyproject.toml constraints.txt
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { \
	  rm -rf $(VENV); \
	  echo "This Python cannot make virtual environments: installing python3-venv."; \
	  apt-get update -q && apt-get install -yq python3-venv && $(PYTHON) -m venv $(VENV); }
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[all]' --group dev
	$(BIN)/python -m ottla.records.warm
	$(BIN)/python -m ottla.log.compaction.warm
	$(BIN)/python -m ottla.client.produce.warm
	$(BIN)/python -m ottla.net.warm
	@touch $@

# An oracle of the tests that cannot share an environment with its newer self.
$(OLD_KIO): tests/support/oracles/kio-0.6.2.txt $(STAMP)
	rm -rf $(@D)
	$(BIN)/python -m pip install --quiet --no-deps --target $(@D) --requirement $<
	@touch $@

wheel:  ## build dist/ottla-VERSION-py3-none-any.whl
	$(PYTHON) -m pip wheel --quiet --no-deps --wheel-dir dist .
	@ls dist/ottla-*.whl

# Where nothing of the checkout is found. All other packages are those of .venv.
COMPILED := .build/compiled
COMPILED_PYTHON := $(COMPILED)/venv/bin/python
PURELIB := -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
COMPILED_TESTS ?= tests/unit/client/produce tests/unit/client/transactions tests/unit/records tests/clients/own/test_keys.py \
  tests/clients/own/test_lifetime.py tests/clients/own/test_producer.py tests/clients/own/test_transactions.py \
  tests/clients/test_idempotence.py
compiled: bytecode  ## build .build/compiled/ottla-….whl, with a compiled send path, and run the producer's tests on it
	rm -rf $(COMPILED)
	OTTLA_COMPILE=1 $(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $(COMPILED) .
	$(BIN)/python -m venv --without-pip $(COMPILED)/venv
	$(BIN)/python -m pip --python $(COMPILED_PYTHON) install --quiet --no-deps $(COMPILED)/ottla-*.whl
	$(BIN)/python $(PURELIB) > "$$($(COMPILED_PYTHON) $(PURELIB))/packages.pth"
	for package in ottla.records ottla.client.produce ottla.net; do $(COMPILED_PYTHON) -m $$package.warm || exit 1; done
	OTTLA_TEST_COMPILED=1 $(COMPILED_PYTHON) -m pytest -n $(WORKERS) --dist loadgroup -q -m "not compat and not soak" \
	  $(COMPILED_TESTS)

# What pip does with what it installs: else every process of a test compiles the sources anew where nothing may write.
bytecode: setup
	@$(BIN)/python -m compileall -q src tests bench tools

demo: bytecode  ## run a broker, clients and a Spark pipeline together
	@$(BIN)/ottla demo

test: bytecode  ## run all tests that do not need Apache Kafka, including Spark
	@command -v java >/dev/null || { echo "Java is not installed, and Spark needs it: installing it."; \
	  apt-get update -q && apt-get install -yq --no-install-recommends openjdk-17-jre-headless; }
	WORKERS=$(WORKERS) $(BIN)/python tools/run_tests.py -m "not compat and not soak"

test-pythons:  ## run some tests with each supported Python on this machine (TESTS=…)
	$(PYTHON) tools/pythons.py $(TESTS)

check: setup  ## run ruff, mypy (strict) and import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/lint-imports --config tools/import_cycles.toml

format: setup  ## format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

compat: bytecode  ## run the tests that need Apache Kafka, Spark's Kafka connector and kcat (downloads them)
	$(BIN)/python tools/kafka_artifacts.py
	$(BIN)/python tools/spark_artifacts.py
	@command -v kcat >/dev/null || { echo "kcat is not installed: installing it."; \
	  apt-get update -q && apt-get install -yq --no-install-recommends kcat; }
	cd tests && PYTHONPATH=.:../tools ../$(BIN)/python -m support.class_archive
	$(BIN)/python tools/run_tests.py --compat -m "compat and not soak"

# Processes that tests start are measured too. Kills lose what the killed process ran.
coverage: export COVERAGE_FILE = $(CURDIR)/.build/coverage/data
coverage: bytecode  ## branch coverage of `make test` by room, and the modules that need tests (ARGS=…)
	rm -rf .build/coverage && mkdir -p .build/coverage
	-$(BIN)/coverage run -m pytest -n $(WORKERS) --dist loadgroup -q -m "not compat and not soak" $(ARGS)
	$(BIN)/coverage combine --quiet
	$(BIN)/python tools/coverage_by_room.py

SECONDS_EACH ?= 900
PEERS ?= 4.3.1 3.9.1
differential: bytecode  ## send random requests to Ottla and Kafka and compare the responses (SECONDS_EACH=…, PEERS=…, SEED=…)
	$(BIN)/python tools/kafka_artifacts.py
	for peer in $(PEERS); do \
	  (cd tests && PYTHONPATH=.:../tools ../$(BIN)/python -m differential --peer $$peer --seconds $(SECONDS_EACH) \
	    --restarts 3 $(if $(SEED),--seed $(SEED))) || exit 1; \
	done

bench: bytecode  ## run all benchmarks next to their peers
	$(BIN)/python bench/wire.py
	$(BIN)/python bench/records.py
	$(BIN)/python bench/compression.py
	$(BIN)/python bench/log.py
	$(BIN)/python tools/kafka_artifacts.py
	$(BIN)/python bench/compaction.py --kafka
	$(BIN)/python -m bench.broker --save
	$(BIN)/python -m bench.cluster --save
	$(BIN)/python -m bench.groups --save
	$(BIN)/python -m bench.transactions --save
	$(BIN)/python -m bench.forms --save
	$(BIN)/python -m bench.clients --save
	$(BIN)/python tools/spark_artifacts.py
	$(BIN)/python -m bench.spark --save

COUNT ?= 1000000
fuzz: bytecode  ## decode a million mutated frames and as many mutated batches (COUNT=…)
	cd tests && ../$(BIN)/python -m fuzz.wire --count $(COUNT)
	cd tests && ../$(BIN)/python -m fuzz.records --count $(COUNT)

KILLS ?= 600
crash: bytecode  ## kill a process that appends or compacts, hundreds of times (KILLS=…, OTTLA_SEED=…)
	OTTLA_KILLS=$(KILLS) $(PYTEST) -n $(WORKERS) -rP tests/crash

# For each example that a property test draws in `make test`, this many.
EXAMPLES ?= 25
# Of faults under load in a cluster of three brokers.
MINUTES ?= 10
# One seed for the whole run, printed first, so that any failure can be run again. No single other test may take an hour.
soak: bytecode  ## run the long fault, damage and chaos tests (MINUTES=… of cluster faults, OTTLA_SEED=…, TESTS=…)
	$(BIN)/python tools/kafka_artifacts.py
	@seed=$${OTTLA_SEED:-$$($(BIN)/python -c 'import random; print(random.randrange(1, 2**32))')}; \
	  echo "OTTLA_SEED=$$seed"; \
	  OTTLA_SEED=$$seed OTTLA_MINUTES=$(MINUTES) $(PYTEST) -n $(WORKERS) --dist loadgroup --timeout 3600 -rP -m soak $(TESTS) \
	    || { echo "make soak failed. Run it again with OTTLA_SEED=$$seed."; exit 1; }
	$(if $(TESTS),,OTTLA_EXAMPLES=$(EXAMPLES) $(PYTEST) -n $(WORKERS) --dist loadgroup --timeout 3600 -m "hypothesis and not soak and not compat")

golden: bytecode  ## capture the golden bytes from real clients and brokers again
	$(BIN)/python tools/kafka_artifacts.py
	$(BIN)/python tests/golden/capture.py
	cd tests && PYTHONPATH=.:../tools ../$(BIN)/python -m compat.tools.record
	cd tests && PYTHONPATH=.:../tools ../$(BIN)/python -m compat.groups.record
	cd tests && PYTHONPATH=.:../tools ../$(BIN)/python -m compat.cluster.record

clean:  ## delete everything that was built
	rm -rf $(VENV) .build
