# Every target creates what it needs; `make help` lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SHELL  := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup check test test-all demo bench docs simulate soak oracle lock clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(STAMP) ## virtual environment and pinned packages (needs python3 >= 3.11 and a package index)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "shoal needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make setup PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.packages: requirements.lock | $(VENV)/bin/python
	@echo "installing pinned packages (once)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(STAMP): $(VENV)/.packages pyproject.toml setup.py $(wildcard src/shoal/records/kernel*.[ch])
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

check: $(STAMP) ## format, lint, types, layers
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-cache --verbose > $(VENV)/layers.txt 2>&1 || { cat $(VENV)/layers.txt; exit 1; }
	@echo "check: ok"

test: $(STAMP) ## the tests CI runs
	@$(BIN)/python -m pytest -m "not long" $(ARGS)

test-all: $(STAMP) ## everything, long tests included
	@$(BIN)/python -m pytest $(ARGS)

demo: $(STAMP) ## the main job: embedded broker, a consumer group, the Spark pipeline
	@$(BIN)/shoal demo $(ARGS)

bench: $(STAMP) ## all benchmarks, peers in the same run
	@$(BIN)/python -m benchmarks $(ARGS)

docs: $(STAMP) ## the documentation site, into site/
	@$(BIN)/python -m docs.build

simulate: $(STAMP) ## the group simulator: make simulate SEED=7 or SECONDS_TO_RUN=60
	@$(BIN)/python -m shoal.testing.simulate $(if $(SEED),--seed $(SEED)) $(if $(SECONDS_TO_RUN),--seconds $(SECONDS_TO_RUN)) $(ARGS)

soak: $(STAMP) ## kills, pauses and cuts under load, checked by history
	@$(BIN)/python -m tests.soak $(ARGS)

oracle: $(STAMP) ## 20,000 random assignments compared with Apache Kafka's own classes
	@$(BIN)/python -m tests.assign.oracle --cases 20000 $(ARGS)

lock: $(VENV)/bin/python ## pin the newest versions that fit pyproject.toml
	@$(BIN)/python -m pip install -q uv
	@$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --no-annotate --upgrade -q -o requirements.lock

clean: ## remove the virtual environment and everything built
	@rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .hypothesis src/*.egg-info demo-output
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +; find src -name '*.so' -delete
