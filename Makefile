# Each target sets up what it needs: a fresh clone wants only make and Python 3.11 or newer.
# The environment is .venv. It is made with uv where uv is found, with venv and pip otherwise,
# and made again when pyproject.toml changes, the folder moves or an installation was cut short.
#
#   make demo       run the demonstration; its pages and pictures go to demo/
#   make smoke      run some tests of every subject, in half a minute
#   make test       run the tests, with some of many like cases
#   make test-lowest    run the tests of the command with the oldest versions of all dependencies
#   make check      run every check that a change must pass, and the tests
#   make docs       build the documentation into site/
#   make serve      build it, and serve it on this machine until interrupted
#   make format     rewrite the sources in the house format
#   make clean      remove everything that these targets made
#
#   make test PYTHON=python3.12     use this Python
#   make test JOBS=0                run the tests in one process
#   make test ARGS="-k shapes"      pass more arguments to pytest
#   make test ARGS=--full           try every case of every test
#   make test WITH="torch jax"      install these extras first, whose tests are skipped else;
#                                   UV_TORCH_BACKEND=cpu before it takes torch without CUDA
#   make serve PORT=8001            serve at another port

PYTHON ?=
JOBS ?= 2
ARGS ?=
WITH ?=
PORT ?= 8000

VENV := .venv
BIN := $(VENV)/bin
UV := $(shell uv --version >/dev/null 2>&1 && echo yes)

# The modules that make an environment: uv brings its own.
VENV_MODULES := $(if $(UV),sys,sys, venv, ensurepip)
CANDIDATES := $(or $(PYTHON),python3 python3.14 python3.13 python3.12 python3.11 python)

# A candidate is run, not just looked up: a version manager's shim may exist and yet refuse.
FIND_PYTHON = for candidate in $(CANDIDATES); do \
	if $$candidate -c 'import $(VENV_MODULES); sys.exit(sys.version_info < (3, 11))' \
		>/dev/null 2>&1; then echo $$candidate; exit 0; fi; \
	done; \
	echo "tcusim needs Python 3.11 or newer with its venv module; tried: $(CANDIDATES)." >&2; \
	echo "Install one (on Debian and Ubuntu also python3-venv), or name it: make PYTHON=..." >&2; \
	exit 1

ifdef UV
CREATE = uv venv --quiet --seed --python $$python $(VENV)
UPGRADE = @:
INSTALL = uv pip install --quiet --python $(BIN)/python
else
CREATE = $$python -m venv $(VENV)
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check
# Python 3.11 and 3.12 bring a pip that knows no dependency groups.
UPGRADE = $(INSTALL) --upgrade "pip>=25.1"
endif

EXTRAS_test := [bf16,compile,cuda]
EXTRAS_docs := [bf16]

# `ready` is written last and holds the folder's path, so a part-made or moved .venv is stale.
STALE := $(shell test "$$(cat $(VENV)/ready 2>/dev/null)" = "$(CURDIR)" \
	&& test -x $(BIN)/python || echo yes)

# Files that take a second or two, and a test of those that take longer.
SMOKE := tests/packaging/test_import.py tests/agree/test_steps.py \
	$(foreach name,grammar formats shapes arches printer interpreter launches backends plugins errors \
	testing,tests/unit/test_$(name).py) \
	tests/emit/test_emit.py::test_golden \
	tests/recorded/test_recorded.py::test_wmma_of_an_h200 \
	tests/unit/test_fused.py::test_steps_are_chained \
	tests/unit/test_functions.py::test_a_nan_spoils_the_rest_of_a_long_scan_only \
	tests/unit/test_plans.py::test_a_plan_prints_everything \
	tests/unit/test_run.py::test_operations

# What else runs with the oldest versions of the dependencies: the command, whose libraries change
# most, and the optional libraries that install everywhere.
WITH_LOWEST := tests/packaging/test_optional.py $(foreach name,app cli_cost cli_explore \
	cli_layout dask_functions explain files list main options output plain program run step \
	unit validate,tests/unit/test_$(name).py)

# Blocks of the pages and lessons are run first; what comes out becomes the site.
BUILD_DOCS = $(BIN)/python docs/tools/pages.py .build/pages \
	&& $(BIN)/python -m mkdocs build --strict

# A process takes tests that follow each other, which share what their module prepares.
DIST := --dist worksteal

export NO_MKDOCS_2_WARNING = 1

.NOTPARALLEL:
.PHONY: demo smoke test test-lowest check docs serve format clean $(if $(STALE),$(VENV)/ready)

demo: $(VENV)/has-demo
	$(BIN)/python tutorials/demo/elevation.py

smoke: $(VENV)/has-test
	$(BIN)/python -m pytest -q $(SMOKE) $(ARGS)

test: $(VENV)/has-test $(WITH:%=$(VENV)/with-%)
	$(BIN)/python -m pytest -n $(JOBS) $(DIST) $(ARGS)

# An environment of its own. The oldest NumPy has wheels for these versions of Python alone. Old
# libraries use what newer ones beside them call deprecated: warnings are no errors here.
test-lowest:
	@mkdir -p .build
	@python=$$($(FIND_PYTHON)) && $$python tests/shared/lowest_versions.py > .build/lowest.txt
	PIP_CONSTRAINT=$(CURDIR)/.build/lowest.txt UV_CONSTRAINT=$(CURDIR)/.build/lowest.txt \
		$(MAKE) smoke VENV=.build/lowest PYTHON="$(or $(PYTHON),python3.11 python3.12)" \
		EXTRAS_test="[bf16,compile,cuda,dask]" ARGS="$(WITH_LOWEST) -W default $(ARGS)"

check: $(VENV)/has-test $(VENV)/has-check $(VENV)/has-docs
	$(BIN)/python -m ruff format --check
	$(BIN)/python -m ruff check
	$(BIN)/python -m mypy
	$(BIN)/python -m basedpyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m pytest -n $(JOBS) $(DIST) $(ARGS)
	$(BUILD_DOCS)

docs: $(VENV)/has-docs
	$(BUILD_DOCS)

serve: docs
	@echo "http://127.0.0.1:$(PORT)/ has the documentation; Ctrl-C ends it."
	@$(BIN)/python -m http.server --bind 127.0.0.1 --directory site $(PORT) >/dev/null

format: $(VENV)/has-check
	$(BIN)/python -m ruff format
	$(BIN)/python -m ruff check --fix

clean:
	rm -rf $(VENV) .build demo dist site .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/ready: pyproject.toml
	@python=$$($(FIND_PYTHON)) && echo "making $(VENV) with $$python" \
		&& rm -rf $(VENV) && $(CREATE)
	$(UPGRADE)
	$(INSTALL) --editable .
	@printf '%s' "$(CURDIR)" > $@

# Each is a dependency group of pyproject.toml. While one is being installed there is no `ready`:
# cut short, it is all made again. An ordinary failure, such as no network, changes nothing and puts
# `ready` back. The tests also want the extras that need no GPU; the demonstration does not.
$(VENV)/has-%: $(VENV)/ready
	@mv $< $(VENV)/unfinished
	$(INSTALL) --editable ".$(EXTRAS_$*)" --group $* || { mv $(VENV)/unfinished $<; exit 1; }
	@mv $(VENV)/unfinished $<
	@touch $@

# Extras that no group of dependencies has: torch is gigabytes on Linux.
$(VENV)/with-%: $(VENV)/has-test
	$(INSTALL) --editable ".[$*]"
	@touch $@
