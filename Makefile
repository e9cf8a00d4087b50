# `make demo` and `make test` need Python 3.11 or newer, git and make; they install the rest into .venv.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

.PHONY: demo test lint format types unit bench clean

demo: .venv/.installed
	$(BIN)/downside reproduce example1
	$(BIN)/downside solve downside/AmericanPut-v0 --risk "0.5*mean + 0.5*cvar(0.2)" --gamma 1

test: lint types unit

lint: .venv/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: .venv/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: .venv/.installed-dev
	$(BIN)/pyright

unit: .venv/.installed-dev
	$(BIN)/python -m pytest -n $(WORKERS)

bench: .venv/.installed
	$(BIN)/python benchmarks/utility.py
	$(BIN)/python benchmarks/planner.py

clean:
	rm -rf .venv .venv-bench build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Downside needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.installed: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

.venv/.installed-dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@ .venv/.installed
