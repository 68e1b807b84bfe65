# holdfast: everything a fresh checkout needs. Try `make help`.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
BENCH  := $(VENV)/.bench-ready
SERVER := $(VENV)/.server-ready

PORT ?= 7373
FILE ?= locks.db

SEEDS ?= 1000
START ?= 0
STORE ?= both
FLEET ?= locks

CHECKED := api clients conformance simulation
EXTENT  ?= full

STORES ?= sqlite,postgres,mariadb
SEED   ?=
PROOF_SECONDS ?=
PROOF  ?=

SECTIONS ?=

# Install the Debian packages that module $(1) says are missing; else say what follows, $(2).
define install
@missing="$$($(BIN)/python -m $(1))"; \
if [ -z "$$missing" ]; then exit 0; fi; \
install() { DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; }; \
if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
    echo "installing $$missing"; install || { apt-get update -qq && install; }; \
    missing="$$($(BIN)/python -m $(1))"; \
fi; \
if [ -n "$$missing" ]; then \
    echo "MISSING: $$missing. $(2)" >&2; \
fi
endef

# Tests start thousands of processes: each would compile all of the source again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help run demo show check test core full rotation pythons servers lint simulate explore proof mutants bench clean

help: ## show this help
	@awk 'BEGIN {FS = ":.*## "} /^[a-z]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: $(SERVER) ## start the lock server and its dashboard on an SQLite file: PORT=7373 FILE=locks.db
	@$(BIN)/holdfast serve --url 'sqlite:///$(FILE)' --port $(PORT)

demo: $(SERVER) ## the same with lively traffic to watch in the dashboard, on a temporary file: PORT=7373
	@$(BIN)/python -m examples.demo --server --port $(PORT)

show: ## watch real processes contend for a lock in the terminal; needs nothing but Python
	@PYTHONPATH=src $(PYTHON) -m examples.demo

check: lint core ## the inner loop: style, types, and each test once on what needs no server
	$(BIN)/python -m pytest -q -n 6 --extent quick --ignore-glob='*/test_http_*' $(addprefix tests/,$(CHECKED))

test: lint core servers ## what a contributor and CI need: also database servers, processes, the lock server, the page
	$(BIN)/python -m pytest -q -n 6 --extent usual tests --ignore tests/unit

core: $(READY)
	$(BIN)/coverage erase
	$(BIN)/coverage run --data-file=.coverage.core -m pytest -q tests/unit
	$(BIN)/coverage report --data-file=.coverage.core --include='src/holdfast/core/*' --fail-under=100

full: lint servers ## every test on every store, by threads and by tasks; EXTENT=2/6 for a part of what test leaves out
	$(BIN)/python -m pytest -q -n 4 --extent $(EXTENT) tests

rotation: $(READY) servers ## the part of the longer checks that is this commit's turn, as in CI; TURN=3 for another
	$(BIN)/python -m tests.rotation

pythons: $(READY) ## the tests that need no server on the other Pythons we claim, wherever they are found
	$(BIN)/python -m tests.pythons

servers: $(READY) ## install the database servers that tests start (Debian, as root), unless they are there
	$(call install,tests.servers,Tests that need them are skipped; under CI=true they fail.)

lint: $(READY) ## check style and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

simulate: $(READY) ## run many simulation seeds: SEEDS=1000 START=0 STORE=memory|sqlite|both FLEET=locks|engines
	$(BIN)/python -m proof.simulation --seeds $(SEEDS) --start $(START) --store $(STORE) --fleet $(FLEET)

explore: $(READY) ## explore every run of three clients with two keys and a fault: EXPLORE="--clients 2 --faults 2"
	$(BIN)/python -m proof.explorer $(or $(EXPLORE),--clients 3 --keys 2 --turns 1 --faults 1)

proof: $(READY) servers ## put every store through faults and judge the histories: STORES=… SEED=… PROOF_SECONDS=…
	$(BIN)/python -m proof --stores $(STORES) $(if $(SEED),--seed $(SEED)) \
	    $(if $(PROOF_SECONDS),--seconds $(PROOF_SECONDS)) $(PROOF)

mutants: $(READY) ## check that the tests catch every planted flaw
	$(BIN)/python -m proof.mutants

bench: $(BENCH) servers ## measure against limits and peers; writes docs/benchmarks/; SECTIONS="contended http" for a part
	$(call install,bench.packages,What needs them is not measured.)
	$(BIN)/python -m bench $(SECTIONS)

clean: ## remove what was built
	rm -rf $(VENV) build dist .coverage .coverage.* .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("holdfast needs Python 3.11 or newer") if sys.version_info < (3, 11) else None'
	@$(PYTHON) -m venv $(VENV) || { \
	    echo "installing the venv module"; rm -rf $(VENV); \
	    apt-get update -qq && apt-get install -y -qq python3-venv && $(PYTHON) -m venv $(VENV); }

# What serves, without the tools of who develops it.
$(SERVER): pyproject.toml | $(VENV)/bin/python
	@echo "installing holdfast[server] into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[server]'
	@touch $@

$(READY): pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

$(BENCH): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,bench]'
	@touch $@
