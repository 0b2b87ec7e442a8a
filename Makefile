.DEFAULT_GOAL := help
VENV ?= .venv
# Tests of processes wait for half of their time: with three at work two cores are busy.
PROCESSES ?= 3
# A file's tests share a cluster. In the order of the tree the long files come first, the short ones
# of tests/unit last, and the workers end together.
BALANCED := --dist loadfile --no-loadscope-reorder
# One process has all tests of stock brokers, which share three JVMs; the other one has the files.
GROUPED := --dist loadscope --no-loadscope-reorder
# Folders whose tests are all for other targets: each worker would import them only to leave them out.
ELSEWHERE := $(addprefix --ignore=tests/,spark chaos containers e2e/clients e2e/stock)
BIN := $(VENV)/bin
# Only tests that tests/unstable.toml lists get a second attempt (ADR 0064).
TESTED := $(BIN)/python -m tests.support.second_attempt
export VENV
# Processes that tests start import what the last one compiled, whatever a container image forbids.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup setup-pipeline audit sbom demo demo-recording docs test nightly spark-test check lint observability-check protos lock bench up down fmt sim mutants chaos soak newest-python-test clients-test compose-test clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-20s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## Create the virtual environment from the lock file (done by all others when needed)
	@scripts/setup.sh

setup-pipeline: ## The same with Spark, and a JVM for it where it can be installed
	@scripts/setup.sh pipeline

demo: setup ## Stock Pulsar clients, leaders and a broker killed: no acknowledged message is lost
	@$(BIN)/nextgen demo $(ARGS)

demo-recording: setup ## Run the demo and keep its output as docs/demo.cast and docs/demo.svg
	@$(BIN)/python scripts/record_demo.py

up: setup ## Start a cluster on this machine; ARGS="--minimal" for one process of each kind
	@$(BIN)/nextgen up $(ARGS)

down: setup ## Stop the cluster that `make up` started
	@$(BIN)/nextgen down $(ARGS)

test: setup-pipeline ## All tests but those of `make nightly` and those with a container engine; ARGS for pytest
	$(TESTED) -n $(PROCESSES) $(BALANCED) $(ELSEWHERE) -m "not containers and not chaos and not slow and not spark and not clients" --durations=40 $(ARGS)
	$(TESTED) -n 2 $(BALANCED) -m "spark and not slow" --timeout=300 --durations=20 tests/spark $(ARGS)

spark-test: setup-pipeline ## The tests of the pipelines only; ARGS for pytest
	$(TESTED) -n 2 $(BALANCED) -m "spark and not slow" --timeout=300 --durations=20 tests/spark $(ARGS)

nightly: setup-pipeline ## The tests that take too long for each change, and Spark's compiled; ARGS for pytest
	SPARK_COMPILED=1 $(TESTED) $(BALANCED) -n 2 -m "slow and not containers" --timeout=900 $(ARGS)
	SPARK_COMPILED=1 $(TESTED) -n 2 $(BALANCED) -m "spark and not slow" --timeout=600 tests/spark $(ARGS)
	$(TESTED) -n 2 $(BALANCED) -m hypothesis --hypothesis-profile=nightly --timeout=600 tests/unit $(ARGS)

newest-python-test: ## A short set of the tests on the newest Python that is installed, in .venv-newest
	scripts/newest-python.sh

clients-test: setup ## Clients in other languages and stock brokers, from their registries (skipped without tools)
	$(TESTED) -n 2 $(GROUPED) -m clients --durations=40 tests/e2e/stock tests/e2e/clients $(ARGS)

check: setup lint ## Formatting, lint, types, import directions, sizes and names, stubs not stale
	$(BIN)/pytest --quiet tests/unit/test_tidy.py
	scripts/stubs.sh --check

lint: setup ## Formatting, lint, types and import directions only
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: setup ## Format the code and mend what can be mended
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

observability-check: setup ## Alert rules, their tests and dashboards, by Prometheus' own checker
	$(TESTED) tests/unit/test_observability_files.py tests/integration/observability $(ARGS)

protos: setup ## Generate the stubs from the .proto files
	scripts/stubs.sh

lock: setup ## Write the lock files from pyproject.toml; ARGS="--upgrade" for the newest versions
	scripts/lock.sh $(ARGS)

audit: setup ## Known vulnerabilities in what the locks pin (skipped where the database is not reachable)
	$(BIN)/python scripts/audit.py $(ARGS)

sbom: setup ## Bills of materials (CycloneDX JSON) of the lock files, checked against them, in build/sbom
	$(BIN)/python scripts/sbom.py $(ARGS)

docs: ## The documents as a site, in build/site; in an environment of its own, .venv-docs
	@VENV=.venv-docs scripts/setup.sh docs
	@NO_MKDOCS_2_WARNING=1 .venv-docs/bin/python -m mkdocs build --quiet --strict
	@echo "build/site/README.html"

bench: setup ## Run the benchmarks, or the one named: BENCH=name
	@for script in $(filter-out benchmarks/support/%,$(wildcard $(addsuffix $(or $(BENCH),[a-z]*).py,benchmarks/ benchmarks/*/))); do \
	  echo "== $$script"; PYTHONPATH=. $(BIN)/python "$$script" $(ARGS) || exit 1; done

sim: setup ## Seeded simulations, the quick set; SEEDS=n [FROM=n] many, SEED=n [TRACE=1] one; KIND=engine or cluster
	$(if $(SEEDS)$(SEED),PYTHONHASHSEED=0 $(BIN)/python -m tests.simulation.run \
	  $(if $(SEED),--seed=$(SEED) $(if $(TRACE),--trace),--seeds=$(SEEDS) --from=$(or $(FROM),1)) \
	  $(if $(KIND),--kind=$(KIND)),$(BIN)/pytest tests/simulation $(ARGS))

mutants: setup ## Remove each guard in turn and see what fails: writes docs/guards.md; ONLY="name …" SEEDS=n MINUTES=n
	PYTHONHASHSEED=0 $(BIN)/python -m tests.simulation.prove --write $(if $(SEEDS),--seeds=$(SEEDS)) \
	  $(if $(MINUTES),--minutes=$(MINUTES)) $(if $(ONLY),--only $(ONLY)) $(ARGS)

chaos: setup-pipeline ## Break clusters under load, a minute by `nextgen chaos` too, and compare what was acknowledged
	$(BIN)/pytest -m "chaos and not slow" tests/chaos $(ARGS)

soak: setup ## 10,000 seeds and 30 min of chaos, goes on where it stopped; SEEDS=n MINUTES=n PARTS=n ONLY=sim or chaos
	@PYTHONHASHSEED=0 $(BIN)/python -m tests.simulation.soak $(if $(SEEDS),--seeds=$(SEEDS)) \
	  $(if $(MINUTES),--minutes=$(MINUTES)) $(if $(PARTS),--parts=$(PARTS)) $(if $(ONLY),--only=$(ONLY))
	@if $(BIN)/python -c "import atheris" 2>/dev/null; then \
	  $(BIN)/python -m tests.fuzz.atheris_frames -max_total_time=$(or $(FUZZ_SECONDS),300); \
	  else echo "skipped: tests/fuzz/atheris_frames.py, because atheris is not installed"; fi
	$(MAKE) nightly
	$(BIN)/pytest -n $(PROCESSES) -m hypothesis --hypothesis-profile=explore --timeout=900 tests/unit

compose-test: setup ## Build the image, run the cluster as containers, kill one (needs an engine)
	$(TESTED) -m containers --timeout=1800 tests/containers $(ARGS)

clean: ## Remove what tools left behind; the virtual environment stays
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
