# Every target makes or updates .venv by itself and does nothing that is done already.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# File by file, in the order of conftest.py. One process more than there are processors: many tests wait for servers.
WORKERS = $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')
PYTEST = $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

.PHONY: demo test check lint docs reference kernels bench figures screenshots gallery soak dist release-check clean

demo: $(VENV)/package
	$(BIN)/mcfair demo

# The quick tier: what to run while you work. conftest.py says what belongs to it.
test: $(VENV)/tests kernels
	$(PYTEST)

# Everything.
check: $(VENV)/all
	$(MAKE) --no-print-directory --jobs 2 --output-sync lint docs kernels
	$(PYTEST) --all

lint: $(VENV)/all
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(VENV)/all
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -j auto -c docs . build/docs
	@echo "open build/docs/index.html"

kernels: $(VENV)/package
	@$(BIN)/python tests/compile_kernels.py

reference: $(VENV)/all
	$(BIN)/python docs/make_reference.py

bench: $(VENV)/all
	$(BIN)/python benchmarks/run.py

figures: $(VENV)/all
	$(BIN)/python docs/make_figures.py

screenshots: $(VENV)/all
	$(BIN)/python docs/make_screenshots.py
	$(BIN)/python docs/make_figures.py --quoted

gallery: $(VENV)/all
	$(BIN)/python docs/gallery/execute.py

soak: $(VENV)/all
	$(BIN)/python tests/crash_loop.py --kills 60
	$(BIN)/python tests/crash_loop.py --kills 62 --store postgresql --max-seconds 10
	$(BIN)/python tests/soak.py --minutes 10
	$(BIN)/python tests/soak.py --minutes 4 --kill-every 8
	$(BIN)/python tests/batch_faults.py
	$(PYTEST) --all --hypothesis-profile soak

dist: $(VENV)/release
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

release-check: dist
	$(BIN)/python tests/release_check.py dist

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

# Bytecode is written by what is imported: to compile all that is installed takes half of the time of installing.
unexport PYTHONDONTWRITEBYTECODE
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable

# What each target needs and no more: the package with its report, the quick tests, everything.
$(VENV)/package: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mcfair needs Python 3.11 or newer, this is " + sys.version.split()[0] + "; name another with make PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) '.[report]'
	@touch $@

$(VENV)/tests: $(VENV)/package
	$(INSTALL) '.[dev]'
	@touch $@

$(VENV)/all: $(VENV)/tests
	$(INSTALL) '.[check]'
	@touch $@

$(VENV)/release: $(VENV)/package
	$(INSTALL) '.[release]'
	@touch $@
