# `make demo` and `make test` are all a fresh machine needs: Python 3.11 or newer, and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
FLOWER := .venv-flower
FLOWER_READY := $(FLOWER)/.ready
WORKERS ?= 2
QUICK := -m "not data and not slow and not network and not postgresql and not flower and not browser and not wheel" -n $(WORKERS)
MEASURED := algorithms attacks data experiments federation learners privacy

.PHONY: setup demo test coverage network-test sql-test wheel-test flower-test browser-test check data-test mutants bench docs clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints.txt torch
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $(READY)

demo: $(READY)
	$(BIN)/tequio run examples/quickstart.toml

test: $(READY)
	$(BIN)/python -m pytest $(QUICK)

# Lines and branches that the contract battery and these packages' own tests execute; docs/coverage.json keeps the sums.
coverage: $(READY)
	$(BIN)/python -m pytest $(QUICK) $(addprefix --cov=src/tequio/,$(MEASURED)) --cov-branch \
	  --cov-report=json:coverage.json tests/contracts $(addprefix tests/,$(MEASURED))
	PYTHONPATH=docs $(BIN)/python -m reference_pages.coverage coverage.json

# Real processes that talk over loopback; one after another, because they need the cores themselves.
network-test: $(READY)
	$(BIN)/python -m pytest -m "network and not slow" --tb=short

# A PostgreSQL server on a socket of its own, if one is installed.
sql-test: $(READY)
	$(BIN)/python -m pytest -m postgresql -rs tests/data/test_postgresql.py

# tequio from a wheel, in an environment and a folder of its own.
wheel-test: $(READY)
	$(BIN)/python -m pytest -m wheel tests/test_wheel.py

# flwr caps packages that we pin higher, so it has an environment of its own. That lies on top of the other one: what is
# the same in both is not installed twice.
flower-test: $(FLOWER_READY)
	$(FLOWER)/bin/python -m pytest -m flower tests/engines/flower

$(FLOWER_READY): $(READY) constraints-flower.txt
	rm -rf $(FLOWER)
	$(BIN)/python -m venv --without-pip $(FLOWER)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"), "$(CURDIR)/src", sep="\n")' \
	  > $$($(FLOWER)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/below.pth
	$(BIN)/python -m pip --python $(FLOWER)/bin/python install --quiet --no-warn-conflicts \
	  --constraint constraints-flower.txt flwr
	touch $(FLOWER_READY)

# The dashboard in Chromium; TEQUIO_AXE names axe.min.js of axe-core, which looks for what shuts people out.
browser-test: $(READY)
	$(BIN)/python -m pytest -m browser

# Needs the datasets: TEQUIO_DATA names their folder.
data-test: $(READY)
	$(BIN)/python -m pytest -m "data and not slow" -n $(WORKERS)

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Fifty small faults in the core, of which the tests must notice 45. Takes a quarter of an hour.
mutants: $(READY)
	$(BIN)/python tests/mutants.py

bench: $(READY)
	$(BIN)/tequio bench

docs: $(READY)
	$(BIN)/python docs/generate.py
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean:
	rm -rf $(VENV) $(FLOWER) site runs build src/*.egg-info
