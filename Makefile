# Two commands: `make learn` trains an agent and scores it, `make test` runs the suite. An environment that is there
# already is kept, with its build of torch.
# `make check` is what to run before a commit.

PYTHON ?= python3
VENV   ?= .venv
BIN     = $(VENV)/bin
RUN_ID ?= 3dball

# Byte code is kept even where an image says otherwise: the suite starts hundreds of processes, and each would compile
# both packages anew.
export PYTHONDONTWRITEBYTECODE =

.PHONY: learn demo test test-all chaos conformance check check-static docs lock format clean

learn: $(VENV)/.installed
	$(BIN)/mlagents-style learn configs/3dball.yaml --env=sim:3dball --run-id=$(RUN_ID) --force
	$(BIN)/mlagents-style evaluate $(RUN_ID) --episodes 100
	@echo
	@echo "Watch it:    $(BIN)/mlagents-style evaluate $(RUN_ID) --episodes 12 --record 3dball.gif"
	@echo "See curves:  $(BIN)/tensorboard --logdir results"
	@$(GO_ON)

# The shell lives on after Ctrl-C, which ends the demo, to say how to go on.
demo: $(VENV)/.installed
	@trap : INT; $(BIN)/mlagents-style demo; $(GO_ON)

# Commands of the pages are typed without a path, so the environment must be active.
GO_ON = echo "Go on:       . $(BIN)/activate"

# Side by side, one process more than cores and at most four: many tests wait for a simulator or a trainer.
PYTEST = $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist worksteal

# What CI runs: every tier, each property once.
test: $(VENV)/.installed-dev
	$(PYTEST) --durations=25

# That, and everything marked thorough: other seeds and sizes, and all bundled configurations.
test-all: $(VENV)/.installed-dev
	$(PYTEST) --durations=25 -m "not chaos"

# Faults and attacks in numbers, one after another on a machine that has nothing else to do; hours. One of them:
#   make chaos CHAOS=tests/chaos/test_signals.py
CHAOS ?= tests/chaos tests/fuzz
chaos: $(VENV)/.installed-dev
	FUZZ=20 $(BIN)/python -m pytest -n 0 -m "chaos or not chaos" $(CHAOS)

# Against the real ML-Agents 1.1.0, which gets an environment of its own (MLAGENTS_PEER=DIR names one).
conformance: $(VENV)/.installed-dev
	$(BIN)/python tools/conformance.py

check-static: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The last line counts what is hard to read; `python tools/check_prose.py` lists it.
check: check-static
	$(PYTEST) -q -m "unit and not thorough"
	$(BIN)/python tools/check_prose.py --counts

# The pages and the reference of the Python API as HTML; every warning is an error. Begins at docs/_build/html/index.html
docs: $(VENV)/.installed-docs
	$(BIN)/python -m sphinx -W --keep-going -q -c docs -d docs/_build/doctrees . docs/_build/html

# Pins what developers install, with hashes, for every platform and Python: after a change of the dependencies.
UV ?= uv
lock:
	$(UV) pip compile pyproject.toml --quiet --extra dev --extra docs --universal --python-version 3.11 \
	  --generate-hashes --no-annotate --custom-compile-command "make lock" --output-file requirements-dev.txt

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' || \
	  { echo "Python 3.11 to 3.14 is needed; $(PYTHON) is $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

# Python compiles a module when it is first imported. Left to it, pip would compile all that there are, which takes more than
# half of an installation.
INSTALL = $(BIN)/python -m pip install --quiet --no-compile --editable

# Installing compiles the kernel, where a C compiler is (hatch_build.py); pip shows nothing of that.
KERNEL       = trainer_service/learning/kernels/compiled
ABOUT_KERNEL = $(BIN)/python -m trainer_service.learning.kernels.compiled.build --check

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml $(wildcard $(KERNEL)/*.[ch])
	$(INSTALL) ".[classic,watch]"
	@$(ABOUT_KERNEL)
	@touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml $(wildcard $(KERNEL)/*.[ch])
	$(INSTALL) ".[dev]"
	@$(ABOUT_KERNEL)
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-docs: $(VENV)/bin/python pyproject.toml
	$(INSTALL) ".[docs]"
	@touch $@
