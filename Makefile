# make demo   set up and run the main job      make test   set up and run the tests: minutes
# make test FAST=tests/data   the tests of one folder or file
# make test-all   all tests, including inherently slow ones
# make reproduce   reproduce the paper's tables and figures, on a CPU
# make test-gpu   on a GPU node: all checks that need a GPU, and a report
# make test-gpu REHEARSE=1   the same without a GPU, at toy sizes
# make docs   the pages of docs/ as a static site, build/site/index.html
# make test-slurm   the tests that need Slurm, which it installs (Debian or Ubuntu, as root)
# make test-ci   test-all and test-slurm in one session: what .ci/run calls
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest
# One worker per core; more would not fit into the memory of most machines.
WORKERS := -n auto --maxprocesses 8

.PHONY: venv demo reproduce test test-slow test-all test-gpu test-slurm test-ci slurm docs lint clean

venv: $(STAMP)

# Installs once, and again only if the requirements have changed.
$(STAMP): pyproject.toml constraints.txt
	@echo "Setting up $(VENV): once, a few minutes"
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	# setuptools first, then no build isolation: an isolated build would not see the constraints.
	$(BIN)/pip install -q -c constraints.txt setuptools
	$(BIN)/pip install -q -c constraints.txt --no-build-isolation -e '.[dev]'
	touch $@

demo: $(STAMP)
	$(BIN)/mixit-titan demo --out runs/demo

reproduce: $(STAMP)
	$(BIN)/mixit-titan reproduce --scale cpu --out runs/reproduce

# One folder or file only: no lint, no workers.
ifdef FAST
test: $(STAMP)
	$(PYTEST) -m 'not slow' $(FAST)
else
test: lint
	$(PYTEST) $(WORKERS) -m 'not slow' --ignore=tests/slurm
endif

test-slow: $(STAMP)
	$(PYTEST) $(WORKERS) -m slow --ignore=tests/slurm

# In one session: what tests share is made once, and no worker waits for the end of a first one.
test-all: lint
	$(PYTEST) $(WORKERS) --ignore=tests/slurm

test-gpu: $(STAMP)
	$(BIN)/python -m mixit_titan.gpu_check $(if $(REHEARSE),--rehearse --out runs/gpu_rehearsal)

test-slurm: $(STAMP) slurm
	$(PYTEST) tests/slurm

# One worker more than there are cores: that of Slurm waits for most of its time.
test-ci: lint slurm
	$(PYTEST) -n $$(($$(nproc) + 1)) --maxprocesses 9

slurm:
	bash tests/slurm/install.sh

# The reference from the code, then the site. A broken link is an error.
docs: $(STAMP)
	$(BIN)/pip install -q -c constraints.txt --no-build-isolation -e '.[docs]'
	$(BIN)/python -m mixit_titan.reference
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "wrote build/site/index.html"

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

clean:
	rm -rf $(VENV) build *.egg-info
