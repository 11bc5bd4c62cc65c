# Bare `make` prints the menu. Every target makes what it needs in a fresh clone: nothing to install first but
# Python 3.11 or later and make. CI calls the same targets as people.
.DEFAULT_GOAL := menu
.DELETE_ON_ERROR:
.SUFFIXES:
SHELL := /bin/sh

# Variables: `make PYTHON=python3.12` (used when .venv is made), `make test TESTS="tests/core -x"`, and with
# `make quick BASE=origin/next` the branch that a change is compared with.
PYTHON ?=
TESTS ?=
BASE ?= main

# Images for deployment often set this. Without bytecode on disk every process compiles its imports again, and pytest
# rewrites the asserts of every test file once for each of its workers.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The venv is created again when the pins change, so that no old package is left in it. A change of pyproject.toml
# only repeats the editable install.
PINNED := .venv/pinned
READY := .venv/ready
# In a fresh clone one process compiles the tests, before several workers all do it.
COMPILED := .venv/compiled
# The output of the tests that `coverage` runs. It is printed only if one fails: other tests print at the same time.
COVERAGE := .venv/coverage.txt
# An MCP server that is not written in Python. npm installs it; without npm the tests that need it are skipped.
NODE_SERVERS := $(if $(shell command -v npm 2>/dev/null),.node/ready)
# Two venvs for the tests of the pytest plugin: without other plugins, and with those that projects often have.
PLUGINS := .venv-plugins/ready

.PHONY: menu
menu: ## print this menu
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: $(READY) ## run an example agent offline, from its cassette
	@$(BIN)/agentrun specs/support.yaml

# Jobs that use one core run in parallel: pip and npm, mypy and the compilation of the tests, and the tests of the core,
# which `coverage` runs in one process, and all other tests. With several traced workers the start would take longer.
.PHONY: test
test: installed ## everything that CI runs: lint, types, tests and the core's coverage
	@$(MAKE) --no-print-directory -j2 lint types $(COMPILED)
	@$(MAKE) --no-print-directory -j2 coverage check $(if $(TESTS),,TESTS=--ignore=tests/core)

.PHONY: installed
installed:
	@$(MAKE) --no-print-directory -j2 $(READY) $(NODE_SERVERS) $(PLUGINS)

.PHONY: test-long
test-long: $(COMPILED) $(NODE_SERVERS) $(PLUGINS) ## every test, the long ones too, and then crash, faults and races
	@AGENTRUN_TESTS=long $(BIN)/pytest -q -n auto --dist worksteal -m "long or not long" $(TESTS)
	@$(if $(TESTS),,$(MAKE) --no-print-directory --keep-going -j1 crash faults races)

.PHONY: crash
crash: $(READY) ## kill real runs at every operation of the store and continue them
	@$(BIN)/python -m tests.durability.crash

.PHONY: faults
faults: $(READY) ## let disks fail and fill up, and limits of the process trip, in real runs
	@$(BIN)/python -m tests.durability.faults

.PHONY: races
races: $(READY) ## start several processes at once: one of them gets the run or the session
	@$(BIN)/python -m tests.durability.races

.PHONY: bench
bench: $(READY) ## measure speed against a baseline of the same run
	@$(BIN)/python bench/run.py

.PHONY: lint
lint: $(READY) ## ruff: rules and format
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --check --quiet . || { echo "not formatted: run 'make format'" >&2; exit 1; }

.PHONY: types
types: $(READY) ## mypy, strict
	@$(BIN)/mypy --no-error-summary

.PHONY: check
check: $(COMPILED) $(NODE_SERVERS) $(PLUGINS) ## the tests alone, on all cores; TESTS="tests/core -x" picks some
	@$(BIN)/pytest -q -n auto --dist worksteal $(TESTS)

.PHONY: quick
quick: lint types ## lint, types and the tests of the packages changed since the merge base
	@tests=$$($(BIN)/python tests/affected.py $(BASE)) && $(BIN)/pytest -q -n auto --dist worksteal $$tests

.PHONY: coverage
coverage: $(READY) ## branch coverage of the core by its own tests; it must be 100 %
	@$(BIN)/coverage run -m pytest -q -p no:xdist tests/core >$(COVERAGE) 2>&1 || { cat $(COVERAGE); exit 1; }
	@$(BIN)/coverage report --skip-covered

.PHONY: format
format: $(READY) ## format all files
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

.PHONY: schemas
schemas: $(READY) ## write schemas/*.schema.json from the models
	@$(BIN)/agentrun schema --write schemas

.PHONY: docs
docs: $(READY) ## write the generated pages of the documentation
	@$(BIN)/python docs/build.py
	@$(BIN)/python docs/api_reference.py
	@$(BIN)/python docs/terminal.py

.PHONY: cassettes
cassettes: $(READY) ## record the cassettes of the example agents again
	@$(BIN)/python specs/record.py

.PHONY: snapshots
snapshots: $(READY) ## accept the present output as the snapshots
	@$(BIN)/pytest -q --snapshot-update $(TESTS)
	@$(if $(TESTS),,$(BIN)/agentrun test specs --update --quiet)

.PHONY: sdks
sdks: .venv-sdk/ready ## install the providers' own clients, for the tests that need them

.PHONY: plugins
plugins: $(PLUGINS) ## install other pytest plugins, for the tests that need them

.PHONY: model
model: .venv-model/ready ## install a small language model, for the tests that need one

.PHONY: build
build: $(READY) ## wheel and sdist in dist/
	@rm -rf dist
	@$(BIN)/python -m build --quiet --no-isolation --outdir dist .
	@ls dist

.PHONY: pins
pins: ## resolve requirements/dev.txt again, to the newest versions
	@echo "resolving the newest versions in a clean venv"
	@$(FIND_PYTHON); set -e; clean=$$(mktemp -d); trap 'rm -rf "$$clean"' EXIT; \
	"$$python" -m venv "$$clean/venv"; pip="$$clean/venv/bin/python -m pip --disable-pip-version-check"; \
	$$pip install -qq '.[dev]'; $$pip freeze --exclude agentrun-harness >"$$clean/pins"; \
	{ sed -n '/^#/p' requirements/dev.txt; cat "$$clean/pins"; } >"$$clean/dev.txt"; \
	cp "$$clean/dev.txt" requirements/dev.txt
	@git --no-pager diff --stat -- requirements/dev.txt

.PHONY: clean
clean: ## remove everything that these targets made
	@rm -rf .venv .venv-plugins .venv-sdk .venv-model .node dist
	@rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage htmlcov
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- the virtual environment --------------------------------------------------------------------------------

# Sets $$python to the first interpreter that is new enough and can make a venv. A name on PATH may be a shim that
# does not start, so each is tried by running it.
define FIND_PYTHON
python=; for candidate in $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11); do \
	if "$$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; \
	then python=$$candidate; break; fi; \
done; \
if [ -z "$$python" ]; then \
	echo "agentrun needs Python 3.11 or later with its venv module; tried:" \
		$(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11) >&2; \
	echo "Install one (Debian: python3 and python3-venv), or name it: make PYTHON=/path/to/python3" >&2; exit 1; \
fi
endef

# Makes the venv $(1) from the versions in the file $(2).
define MAKE_VENV
if command -v uv >/dev/null 2>&1; then uv venv --quiet --python '$(or $(PYTHON),>=3.11)' $(1); \
else $(FIND_PYTHON); "$$python" -m venv $(1); fi && $(INSTALL)
endef

# Adds the versions in the file $(2) to the venv $(1).
define INSTALL
if [ -x $(1)/bin/pip ]; then $(1)/bin/python -m pip --disable-pip-version-check install -qq --no-deps -r $(2); \
else uv pip install --quiet --python $(1)/bin/python --no-deps -r $(2); fi
endef

$(PINNED): requirements/dev.txt
	@echo "making .venv from the pinned versions; this takes a minute, once"
	@rm -rf .venv
	@$(call MAKE_VENV,.venv,$<)
	@touch $@

# The check at the end finds a pin that is missing, or older than pyproject.toml asks for. The distribution was once
# called `agentrun`: where it is still installed under that name, it goes first, because it has the same command.
$(READY): $(PINNED) pyproject.toml
	@if [ -x $(BIN)/pip ]; then \
		$(PIP) uninstall -qq -y agentrun && \
		$(PIP) install -qq --no-deps --no-build-isolation -e . && said=$$($(PIP) check 2>&1); \
	else \
		uv pip uninstall --quiet --python $(BIN)/python agentrun && \
		uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e . && \
		said=$$(uv pip check --python $(BIN)/python 2>&1); \
	fi || { echo "$$said"; echo "the install failed; if a pin is missing or too old, run 'make pins'"; exit 1; } >&2
	@touch $@

$(COMPILED): $(READY)
	@$(BIN)/pytest --collect-only -qq >/dev/null || $(BIN)/pytest --collect-only -q
	@touch $@

# Venvs for the tests that need more than a fresh clone has. Without them those tests are skipped, and say so.
.venv-sdk/ready: requirements/sdks.txt
.venv-model/ready: requirements/model.txt
.venv-sdk/ready .venv-model/ready:
	@echo "making $(@D) from the pinned versions"
	@rm -rf $(@D)
	@$(call MAKE_VENV,$(@D),$<)
	@touch $@

# One venv is a copy of the other, and has more.
$(PLUGINS): requirements/plain.txt requirements/plugins.txt requirements/dev.txt
	@echo "making two venvs for the pytest plugin, in $(@D)"
	@rm -rf $(@D)
	@$(call MAKE_VENV,$(@D)/none,requirements/plain.txt)
	@cp -R $(@D)/none $(@D)/all
	@$(call INSTALL,$(@D)/all,requirements/plugins.txt)
	@touch $@

.node/ready: requirements/node/package.json requirements/node/package-lock.json
	@echo "installing programs for the tests, in .node"
	@rm -rf .node && mkdir .node && cp $^ .node/
	@if (cd .node && npm ci --silent --ignore-scripts --no-audit --no-fund); then touch $@; \
	else echo "npm cannot install it: the tests that need it are skipped" >&2; fi
