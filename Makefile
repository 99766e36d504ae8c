# make demo       train on number words, score, export and translate
# make test       run the tests that are not marked slow
# make test-slow  run the tests that are marked slow
# make coverage   run the tests, and list the lines that they do not reach
# make check      check lint, layout and types
# make format     correct lint and layout
# Requires make and Python 3.10 to 3.13; everything else is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
INSTALLED_DEMO := $(VENV)/installed-demo

# Tests start some hundred processes: each reads the package as it was compiled.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-slow coverage check format clean

demo: $(INSTALLED_DEMO)
	PATH="$(CURDIR)/$(BIN):$$PATH" scripts/reproduce/demo.sh demo

# The tests of a file share fixtures, so one worker runs them all, and for some
# folders all files (tests/plugins/shared_folders.py). They keep their order: by
# default, files with few tests would come last, and those are the slowest.
TEST := $(BIN)/python -m pytest --numprocesses=auto --dist=loadfile \
	--no-loadscope-reorder

test: $(INSTALLED)
	$(TEST)

test-slow: $(INSTALLED)
	$(TEST) -m slow $(OPTIONS)

coverage: $(INSTALLED)
	$(TEST) --cov

check: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) build dist *.egg-info demo

# Install again only if a list of dependencies has changed. The development tools
# include the packages of the demo.
$(INSTALLED_DEMO): setup.py pyproject.toml
	$(call install,demo,2.6 GB)
	touch $@

$(INSTALLED): setup.py pyproject.toml
	$(call install,dev,3.5 GB)
	touch $(INSTALLED_DEMO) $@

# $(call install,EXTRA,SIZE)
define install
	@echo "Installing into $(VENV): TensorFlow and more, about $(2)."
	$(PYTHON) -c 'import sys; assert (3, 10) <= sys.version_info < (3, 14), \
	  f"Python 3.10 to 3.13 is needed, this is {sys.version}: make PYTHON=python3.11"'
	test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --upgrade pip  # pip of Python 3.10 resolves slowly
	$(BIN)/python -m pip install --progress-bar off --editable '.[$(1)]'
endef
