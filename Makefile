# Every target makes its own virtual environment in .venv from the pins in requirements/; a
# second run finds the stamps and installs nothing.  `make help` lists the targets.

PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip --disable-pip-version-check --quiet
INSTALL := $(PIP) install --require-hashes -r

# What ruff and mypy read.
CODE := src tests bench demo

.DELETE_ON_ERROR:
.PHONY: help demo test lint bench pins clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' Makefile | expand -t 8

demo: $(VENV)/.runtime $(VENV)/.demo $(VENV)/.amv ## run the demonstration
	@$(RUN) demo/retail.py

# The coverage that must be reached is that of [tool.coverage.report] in pyproject.toml.
# Two workers have two cores; threads of small products would only wait for each other on them.
test: $(VENV)/.dev $(VENV)/.amv ## run the tests, requiring the core to be covered whole
	@OPENBLAS_NUM_THREADS=1 $(RUN) -m pytest -n 2 --dist worksteal --cov --cov-report=term --cov-fail-under=100

lint: $(VENV)/.dev $(VENV)/.amv ## check style, types and layers
	@$(RUN) -m ruff check $(CODE)
	@$(RUN) -m ruff format --check $(CODE)
	@$(RUN) -m mypy --strict $(CODE)
	@$(VENV)/bin/lint-imports

bench: $(VENV)/.dev $(VENV)/.amv ## run the benchmarks
	@$(RUN) -m bench.store

# Run it with the oldest Python that is supported: the newer ones need no package more.
# `make pins UPGRADE=--upgrade` takes the newest releases; without it pins only move if they must.
COMPILE = CUSTOM_COMPILE_COMMAND='make pins' $(RUN) -m piptools compile --quiet --no-config \
	--generate-hashes --no-emit-options --no-emit-index-url --no-emit-find-links \
	--no-emit-trusted-host --strip-extras --allow-unsafe
PINNED = -c requirements/dev.txt
# What AMV is compared with; each is installed in an environment of its own.
RIVALS := $(basename $(notdir $(wildcard requirements/rivals/*.in)))

pins: $(VENV)/.dev ## write requirements/ anew from pyproject.toml and the .in files
	$(COMPILE) pyproject.toml $(UPGRADE) --extra dev -o requirements/dev.txt
	$(COMPILE) pyproject.toml $(UPGRADE) $(PINNED) -o requirements/runtime.txt
	$(COMPILE) pyproject.toml $(UPGRADE) $(PINNED) --build-deps-for editable --only-build-deps \
		-o requirements/build.txt
	$(COMPILE) $(UPGRADE) $(PINNED) requirements/tau2.in -o requirements/tau2.txt
	for name in $(RIVALS); do $(COMPILE) $(UPGRADE) requirements/rivals/$$name.in \
		-o requirements/rivals/$$name.txt || exit 1; done

clean: ## remove .venv, caches and builds
	rm -rf $(VENV) build dist htmlcov .coverage .coverage.* .hypothesis .import_linter_cache \
		.mypy_cache .pytest_cache .ruff_cache bench/results/*.tmp
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "AMV needs Python 3.11 or newer, and '$(PYTHON)' is not." \
			"Name one that is: make PYTHON=python3.12 ..." >&2; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.runtime $(VENV)/.dev $(VENV)/.build: $(VENV)/.%: requirements/%.txt $(VENV)/.python
	@echo "installing $<"
	@$(INSTALL) $<
	@touch $@

$(VENV)/.demo: requirements/demo.txt $(VENV)/.python
	@echo "installing $<"
	@$(INSTALL) $< --no-deps
	@touch $@

# The build backend is among the pins, so this step fetches nothing.
$(VENV)/.amv: pyproject.toml $(VENV)/.build
	@$(PIP) install --no-index --no-deps --no-build-isolation --editable .
	@touch $@
