# demo: install and try it · test: every test · check: lint and types · fix: format · bench: tables
# docs: the documentation as a site
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
# Build tools come from the environment itself, so that nothing looser than the constraints is
# fetched while building.
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip install --quiet --no-build-isolation -c constraints.txt

.PHONY: demo test check fix bench docs install-demo install-dev wheel clean

demo: install-demo
	$(BIN)/umpteen demo --out demo-run

test: install-dev
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fix: install-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Other benchmarks take data that is not part of the project; see docs/results.md.
bench: install-dev
	$(BIN)/python bench/token_store.py
	$(BIN)/python bench/score_speed.py
	$(BIN)/python bench/index_recall.py

# Reads the code, so that the reference is up to date; a broken link is an error.
docs: install-dev $(VENV)/docs-installed
	$(BIN)/python tools/generate_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site is in site/index.html." >&2

wheel: install-dev
	$(BIN)/python -m build --wheel --no-isolation

install-demo: $(VENV)/demo-installed
install-dev: $(VENV)/dev-installed

$(VENV)/bin/pip:
	@echo "Installing into $(VENV). torch is large: the first time takes some minutes, in silence." >&2
	$(PYTHON) -m venv $(VENV)
	PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip install --quiet -c constraints.txt setuptools wheel

$(VENV)/demo-installed: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(PIP) -e '.[demo]'
	touch $@

$(VENV)/dev-installed: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(PIP) -e '.[dev]'
	touch $@ $(VENV)/demo-installed

$(VENV)/docs-installed: pyproject.toml constraints.txt | $(VENV)/bin/pip
	$(PIP) -e '.[docs]'
	touch $@

clean:
	rm -rf build dist site demo-run src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
