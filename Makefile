# `make demo` and `make test` need Python 3.11 or newer, git and make; they install the rest into .venv.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

.PHONY: demo test second-python test-second test-slow test-long lint format types unit docs bench bench-update bench-gymnasium bench-overhead bench-actors peers peers-lander clean

demo: .venv/.installed
	$(BIN)/downside reproduce example1
	$(BIN)/downside reproduce demo

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
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "not long and not slow"

# A fast part of the tests on another Python, with the newest JAX that it has, from the built wheel.
SECOND ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.13*/bin/python) $(shell command -v python3.13 python3.12) \
	$(wildcard $(HOME)/.pyenv/versions/3.12*/bin/python))
SECOND_TESTS := tests/risk/test_measures.py tests/risk/test_parsing.py tests/ops tests/test_decompose.py

second-python:
	@echo $(SECOND)

test-second:
	@test -n "$(SECOND)" || { echo "There is no second Python (3.12 or 3.13); pass SECOND=."; exit 1; }
	$(SECOND) -m venv build/second
	build/second/bin/python -m pip install --quiet --disable-pip-version-check --no-compile . \
		'pytest>=9,<10' 'hypothesis>=6.130,<7' 'beartype>=0.22,<0.24' 'scipy>=1.15,<2'
	build/second/bin/python -c 'import jax, sys; print("Python", sys.version.split()[0], "with jax", jax.__version__)'
	build/second/bin/python -m pytest -q $(SECOND_TESTS)

# What takes more than a second; the workflow runs it beside `make test`.
test-slow: .venv/.installed-dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "slow and not long"

test-long: .venv/.installed-dev
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m long

# The pages as a site, in build/docs/index.html; `make test` builds them too.
docs: .venv/.installed-dev
	$(BIN)/python -m sphinx -W --keep-going -q -b html -d build/doctrees docs build/docs

bench: .venv/.installed
	$(BIN)/python benchmarks/utility.py
	$(BIN)/python benchmarks/planner.py

# PyTorch and stable-baselines3 are for this comparison alone and stay out of .venv.
bench-update: .venv/.installed .venv-bench/.installed
	$(BIN)/python benchmarks/update.py

bench-gymnasium: .venv/.installed-dev .venv-bench/.installed
	$(BIN)/python benchmarks/gymnasium_speed.py

# What a user would pick instead, after the same CPU time; needs Downside beside PyTorch.
peers: .venv-bench/.installed-downside
	.venv-bench/bin/python benchmarks/peers_field.py

peers-lander: .venv-bench/.installed
	.venv-bench/bin/python benchmarks/peers_lander.py

bench-overhead: .venv/.installed
	$(BIN)/python benchmarks/overhead.py

bench-actors: .venv/.installed .venv-bench/.installed
	$(BIN)/python benchmarks/actors.py

.venv-bench/.installed: | .venv/bin/python
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check \
		stable-baselines3==2.9.2 sb3-contrib==2.9.2 'gymnasium[box2d]'
	@touch $@

.venv-bench/.installed-downside: pyproject.toml .venv-bench/.installed
	.venv-bench/bin/python -m pip install --quiet --disable-pip-version-check --no-compile --editable .
	@touch $@

clean:
	rm -rf .venv .venv-bench build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Downside needs Python 3.11 or newer; $(PYTHON) is older. Try: make PYTHON=python3.12 ..."; exit 1; }
	$(PYTHON) -m venv .venv

.venv/.installed: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable .
	@touch $@

.venv/.installed-dev: pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable '.[dev]'
	@touch $@ .venv/.installed
