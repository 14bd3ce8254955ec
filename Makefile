# Two commands for a newcomer: `make try` and `make test`. Each makes its own virtual environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= 2

.PHONY: try test check format tests chromium test-releases bench fuzz gpu clean

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

tests: $(VENV)/.dev chromium
	$(BIN)/pytest -n $(JOBS) --dist loadgroup

# The page of a report is tested in a real browser. Where we may, and it is missing, we install it.
chromium:
	@if ! command -v chromedriver >/dev/null 2>&1 && command -v apt-get >/dev/null 2>&1 && [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium chromium-driver; \
	fi

## test-releases: the virtual GPU and the simulator against other torch releases (downloads several GB)
test-releases: $(VENV)/.dev
	$(BIN)/python tests/releases/run.py

## bench: speed and memory beside peers, as ratios in one run; writes docs/benchmarks.md
bench: $(VENV)/.dev
	-$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	$(BIN)/python -m benchmarks

## fuzz: some ten minutes of random and coverage-guided input for every reader of foreign data
fuzz: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[fuzz]'
	$(BIN)/python -m tests.attacks.fuzz --seconds 60
	HYPOTHESIS_PROFILE=thorough VRAMDOC_FUZZ_RUNS=1000000 $(BIN)/pytest -m fuzz -n $(JOBS) --durations=5

## gpu: on a machine with a real GPU, the same programs on device, virtual GPU and simulator (at most 8 minutes)
gpu: $(VENV)/.dev
	$(BIN)/python tests/gpu/validate.py

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
