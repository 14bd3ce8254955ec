# Two commands for a newcomer: `make try` and `make test`. Each makes its own virtual environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: try test check format lint types layers tests test-releases bench fuzz gpu clean

# The environment is made again whenever pyproject.toml changes.
$(VENV)/.dev: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

$(VENV)/.try: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[try]'
	touch $@

## try: diagnose a real public checkpoint and a Llama-3-8B-shaped file on a virtual RTX 4090
try: $(VENV)/.try
	PATH="$(CURDIR)/$(BIN):$$PATH" sh examples/try.sh

## test: format check, lint, types, layers, all tests
test: check tests

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

tests: $(VENV)/.dev
	$(BIN)/pytest -n $(JOBS) --dist loadgroup

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
