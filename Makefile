# Two commands: `make demo` shows it, `make test` proves it. Both set up .venv the first time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/pip install --disable-pip-version-check --quiet --constraint constraints.txt

# Data for tests, when a folder of it lies beside the project.
SHARED_DATA := $(wildcard ../shared/data)
ifneq ($(SHARED_DATA),)
export DRAGFL_DATA := $(if $(DRAGFL_DATA),$(DRAGFL_DATA):)$(abspath $(SHARED_DATA))
endif

.PHONY: help demo test test-loaded test-all test-faults lint format bench docs clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

demo: $(VENV)/.demo ## set up and run the main job on embedded data (under a minute)
	$(BIN)/dragfl demo

# A process that has no tests left takes half of the other's; fixtures of a module are made in one of them.
TWO := -n 2 --dist worksteal

test: lint ## set up, lint and run the tests
	$(BIN)/python -m pytest $(TWO)

test-loaded: $(VENV)/.dev ## the tests while four other processes are busy
	$(BIN)/python -m tests.loaded $(TWO)

test-all: lint $(VENV)/.docs ## all tests, the slow ones too
	HYPOTHESIS_PROFILE=explore $(BIN)/python -m pytest $(TWO) -m "slow or not slow"

test-faults: $(VENV)/.dev ## inject thousands of faults and print one table (a quarter of an hour)
	$(BIN)/python -m tests.faults

lint: $(VENV)/.dev ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(VENV)/.dev ## let ruff write the code as it wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(VENV)/.dev ## measure speed as ratios within one run
	$(BIN)/python -m benchmarks

docs: $(VENV)/.docs ## build the documentation site into build/docs, with its search
	$(BIN)/python -m sphinx --quiet --fail-on-warning --keep-going -c docs . build/docs
	@echo build/docs/index.html

clean: ## remove the environment and everything made
	rm -rf $(VENV) demo runs bench build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# A stamp is newer than what it was installed from, so a second call installs nothing.
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[report]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[dev]'
	$(INSTALL) --no-deps byzfl==0.0.11 # an oracle for tests; its own requirements would bring CUDA
	@touch $@ $(VENV)/.demo

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) --editable '.[docs]'
	@touch $@
