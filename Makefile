# Every target creates what it needs; `make help` lists them.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SHELL  := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup check types test coverage test-all test-pythons dist demo bench docs simulate seeds soak oracle differential lock clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## virtual environment and pinned packages (needs python3 >= 3.11 and a package index)

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "shoal needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make setup PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.packages: requirements.lock | $(VENV)/bin/python
	@echo "installing pinned packages (once)"
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

$(STAMP): $(VENV)/.packages pyproject.toml setup.py $(wildcard src/shoal/*/*.[ch])
	@$(BIN)/python -m pip install -q --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

check: $(STAMP) $(BIN)/pyright ## format, lint, types (mypy and pyright), layers, spelling and style, places of planted bugs
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright > $(VENV)/pyright.txt 2>&1 & beside=$$!; $(BIN)/mypy; failed=$$?; \
	  wait $$beside || { cat $(VENV)/pyright.txt; exit 1; }; exit $$failed
	@$(BIN)/python -m tests.broker.handler_types > $(VENV)/handler_types.py
	@$(BIN)/mypy $(VENV)/handler_types.py
	@$(BIN)/lint-imports --no-cache --verbose > $(VENV)/layers.txt 2>&1 || { cat $(VENV)/layers.txt; exit 1; }
	@$(BIN)/python -m tests.size_review
	@$(BIN)/python -m tests.style_check
	@$(BIN)/python -m tests.planted --places
	@echo "check: ok"

types: $(BIN)/pyright ## the second opinion of `make check` alone: pyright in basic mode over what is shipped
	@$(BIN)/pyright

$(BIN)/pyright: requirements.lock | $(STAMP)
	@$(BIN)/python -m pip install -q --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

test: $(STAMP) ## the tests CI runs
	@$(BIN)/python -m pytest -m "not long" $(ARGS)

coverage: $(STAMP) ## what the fast tests of the pure packages reach, against the floors
	@$(BIN)/python -m tests.coverage_floors $(ARGS)

test-all: $(STAMP) ## everything, long tests included, properties with new examples
	@$(BIN)/python -m pytest --hypothesis-profile=new $(ARGS)

test-pythons: $(STAMP) ## the fast tests on every supported Python that is here
	@$(BIN)/python -m tests.packaging.pythons $(ARGS)

dist: $(STAMP) ## sdist and wheel, checked, into dist/
	@$(BIN)/python -m tests.packaging.distribution

demo: $(STAMP) ## the main job: embedded broker, a consumer group, the Spark pipeline
	@$(BIN)/shoal demo $(ARGS)

bench: $(STAMP) ## all benchmarks, peers in the same run
	@$(BIN)/python -m benchmarks $(ARGS)

docs: $(STAMP) ## the documentation site, into site/
	@$(BIN)/python -m docs.build

simulate: $(STAMP) ## the group simulator: make simulate SEED=7 or SECONDS_TO_RUN=60
	@$(BIN)/python -m shoal.testing.simulation $(if $(SEED),--seed $(SEED)) $(if $(SECONDS_TO_RUN),--seconds $(SECONDS_TO_RUN)) $(ARGS)

seeds: $(STAMP) ## which seeds of the simulator notice planted bugs, searched for again
	@$(BIN)/python -m tests.simulation.search $(ARGS)

soak: $(STAMP) ## kills, pauses and cuts under load, checked by history
	@$(BIN)/python -m tests.soak $(ARGS)

oracle: $(STAMP) ## 20,000 random assignments compared with Apache Kafka's own classes
	@$(BIN)/python -m tests.assign.oracle --cases 20000 $(ARGS)

differential: $(STAMP) ## the same requests to Apache Kafka and to our broker; writes docs/differences.md
	@$(BIN)/python -m tests.differential $(ARGS)

lock: $(VENV)/bin/python ## pin the newest versions that fit pyproject.toml
	@$(BIN)/python -m pip install -q uv
	@$(BIN)/uv pip compile pyproject.toml --all-extras --group dev --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-header --no-annotate --upgrade -q -o requirements.lock

clean: ## remove the virtual environment and everything built
	@rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .hypothesis src/*.egg-info demo-output
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +; find src -name '*.so' -delete
