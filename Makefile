# Everything a newcomer and the build server run. Needs Python 3.10 or newer, make, and Java 17 or newer for Spark.
# The project is installed as users install it, as a plain wheel: what is tested is what is shipped.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check --no-input
SEED   ?=
SEEDS  ?= 2000
FIRST  ?= 0
LOCK   ?=
ARGS   ?=
JOBS   ?= 4
MINUTES ?= 30
WRITERS ?= 8
STORE   ?=
TYPE    ?=
SECONDS ?= 60
FULL   ?=
QUICK  ?=

export PYSPARK_PYTHON        := $(abspath $(BIN)/python)
export PYSPARK_DRIVER_PYTHON := $(PYSPARK_PYTHON)
# Empty means: write it. Where it is set, as in many container images, each of hundreds of short processes would compile again
# all that it imports.
export PYTHONDONTWRITEBYTECODE :=

FOLDERS := configs markers occ providers spark_plugin src
# The folders themselves are in the list because a file that was deleted changes nothing but its folder; they end in
# "/." as `find` does not enter the links below `src` otherwise.
SOURCES := pyproject.toml README.md $(shell find $(addsuffix /.,$(FOLDERS)) -name __pycache__ -prune -o \( -type d -o -name '*.py' \
             -o -name '*.toml' -o -name py.typed \) -print)

RUN_STAGES = $(BIN)/python .ci/run_stages.py --jobs $(JOBS)

.PHONY: help demo test lint types layers classes servers tests coverage interop simulate soak bench fuzz docs site format java clean
.NOTPARALLEL:
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: java $(VENV)/.demo ## writers of one real table and of two, four of them killed; SEED=n, LOCK=zookeeper|dynamodb|redis|hive|storage, STORE=s3|hdfs, TYPE=mor, ARGS="--size ..."
	$(BIN)/python -m tests.demo $(if $(SEED),--seed $(SEED)) $(if $(LOCK),--lock $(LOCK)) $(if $(STORE),--store $(STORE)) $(if $(TYPE),--type $(TYPE)) $(ARGS)

test: java $(VENV)/.test ## lint, types, layers, the site, then tests; ends with what failed; CI=1 for what CI runs, FULL=1 for everything
	@$(RUN_STAGES) lint types layers site servers classes -- $(ARGS)

lint: $(VENV)/.test ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.test ## mypy --strict of the installed packages
	$(BIN)/mypy -p lakelock -p pyspark_lakelock
	$(BIN)/mypy -p tests.simulator -p tests.servers -p tests.demo
	$(BIN)/mypy tests/typing

layers: $(VENV)/.test ## who may import whom
	$(BIN)/lint-imports --no-cache

classes: $(VENV)/spark-classes.jsa ## Spark's classes as a JVM has them in memory: with this file one starts in half the time

servers: java $(VENV)/.test ## what tests fetch from elsewhere, such as the jars of Java Hudi: fetched once
	$(BIN)/python -m tests.fetch_servers

tests: java $(VENV)/.test ## the tests alone; ARGS="-k name"
	@$(RUN_STAGES) classes -- $(ARGS)

coverage: java $(VENV)/.test ## the tests, and what they run of the code; CI=1 for all of them
	@$(RUN_STAGES) --coverage servers classes -- $(ARGS)

interop: java $(VENV)/.test ## with Java Hudi 1.2 on the same tables; makes an environment with PySpark 3.5; CI=1 and FULL=1 for more
	FULL=$(FULL) $(BIN)/pytest tests/interop --durations=10 $(ARGS)

simulate: $(VENV)/.test ## simulated histories with faults, on all cores; SEEDS=n, FIRST=seed, PARQUET=1 or SEVERAL=1 for other kinds
	$(BIN)/python -m tests.simulator --seed $(FIRST) --seeds $(SEEDS) $(if $(PARQUET),--parquet) $(if $(SEVERAL),--several-tables)

soak: $(VENV)/.test ## processes of mixed load, killed and paused now and then; MINUTES=30, WRITERS=8
	$(BIN)/python -m tests.faults.soak.run --minutes $(MINUTES) --writers $(WRITERS)

bench: java $(VENV)/.bench ## all benchmarks beside other tools, into the page; some hours. QUICK=1: five minutes, printed; ARGS="growth locks" for some
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick) $(ARGS)

fuzz: $(VENV)/.test ## every parser with inputs that atheris makes, each for SECONDS=60; ARGS=decision for one of them
	$(BIN)/python -m tests.property.fuzz $(ARGS) --seconds $(SECONDS) --corpus .fuzz

docs: $(VENV)/.test ## write the reference pages from the code, and build the site: open site/index.html
	$(BIN)/python docs/generate.py
	@$(MAKE) --no-print-directory site

site: $(VENV)/.test # strict: a dead link, or a page that the navigation lacks, is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

format: $(VENV)/.test ## rewrite the code as the linter wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

java: # Spark's only need outside Python
	@.ci/ensure-java

clean: ## remove what make made
	rm -rf $(VENV) build dist site src/*.egg-info .coverage .coverage.* .hypothesis .mypy_cache .pytest_cache .ruff_cache

# Made once, beside the first tests: it is no prerequisite of theirs. One that no longer fits is not looked at.
$(VENV)/spark-classes.jsa: | java $(VENV)/.test
	-$(BIN)/python -m tests.spark.class_archive

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
		{ echo "lakelock needs Python 3.10 or newer; choose one: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "Python has no venv module; next: apt-get update && apt-get install -y python3-venv" >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	@touch $@

# pip builds in the tree and would pack modules that were deleted since the last build: remove what it left there.
$(VENV)/.bench $(VENV)/.demo $(VENV)/.test: $(VENV)/.%: $(VENV)/.python $(SOURCES)
	rm -rf build src/lakelock.egg-info
	$(PIP) install --quiet --no-compile ".[$*]"
	rm -rf build src/lakelock.egg-info
	@touch $@
