# demo: install and try it · test: every test · check: lint and types · fix: format · bench: tables
# docs: the documentation as a site · lock: hashes of packages · sbom: bill of materials
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= python3
# Build tools come from the environment itself, so that nothing looser than the constraints is
# fetched while building.
PIP := PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip install --quiet --no-build-isolation -c constraints.txt
# LOCKED=1 make ...: only files whose hashes are in requirements.lock (see its first lines).
LOCK := $(if $(LOCKED),requirements.lock)
install = $(if $(LOCKED),$(BIN)/pip install --quiet --require-hashes -r $(LOCK) && $(PIP) --no-deps -e .,$(PIP) -e '.[$(1)]')

.PHONY: demo test check fix bench docs install-demo install-dev wheel lock sbom clean

demo: install-demo
	$(BIN)/umpteen demo --out demo-run

test: install-dev
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n 2 --dist worksteal

check: install-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

fix: install-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Other benchmarks take data that is not part of the project; see bench/README.md.
bench: install-dev
	$(BIN)/python -m bench training tokens
	$(BIN)/python -m bench training metrics
	$(BIN)/python -m bench search indexes

# Reads the code, so that the reference is up to date; a broken link is an error.
docs: install-dev $(VENV)/docs-installed
	$(BIN)/python tools/generate_reference.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site is in site/index.html." >&2

wheel: install-dev
	$(BIN)/python -m build --wheel --no-isolation

# What pip takes for the constraints, with the SHA-256 of each file: for tests and documents, and
# for the container with what builds the package. Needs an index with CPU builds of torch.
lock: install-dev
	$(PIP) --dry-run --ignore-installed --report $(VENV)/lock.json '.[dev,docs]'
	$(PIP) --dry-run --ignore-installed --report $(VENV)/lock-serve.json '.[serve]' setuptools
	$(BIN)/python tools/lock.py $(VENV)/lock.json requirements.lock
	$(BIN)/python tools/lock.py $(VENV)/lock-serve.json requirements-serve.lock

sbom: install-dev
	$(BIN)/python tools/sbom.py > sbom.json
	@echo "The bill of materials is in sbom.json." >&2

install-demo: $(VENV)/demo-installed
install-dev: $(VENV)/dev-installed

$(VENV)/bin/pip:
	@echo "Installing into $(VENV). torch is large: the first time takes some minutes, in silence." >&2
	$(PYTHON) -m venv $(VENV)
	$(if $(LOCKED),,PIP_DISABLE_PIP_VERSION_CHECK=1 $(BIN)/pip install --quiet -c constraints.txt setuptools wheel)

$(VENV)/demo-installed: pyproject.toml constraints.txt $(LOCK) | $(VENV)/bin/pip
	$(call install,demo)
	touch $@

$(VENV)/dev-installed: pyproject.toml constraints.txt $(LOCK) | $(VENV)/bin/pip
	$(call install,dev)
	touch $@ $(VENV)/demo-installed

$(VENV)/docs-installed: pyproject.toml constraints.txt $(LOCK) | $(VENV)/bin/pip
	$(call install,docs)
	touch $@

clean:
	rm -rf build dist site demo-run src/*.egg-info .mypy_cache .ruff_cache .pytest_cache
