# make demo   learn number words, translate, export: the whole road
# make test   the tests            make test-all   the slow ones too
# make check  lint and types       make format     layout
# make coverage  the tests, and the lines that they do not reach
# Needs make and Python 3.10 to 3.12; all else is installed into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed

.PHONY: demo test test-all coverage check format clean

demo: $(INSTALLED)
	PATH="$(CURDIR)/$(BIN):$$PATH" scripts/reproduce/demo.sh demo

# A file's tests share what they train, so they stay together. Not reordered:
# files of few tests, which would come last, are the slowest here.
TEST := $(BIN)/python -m pytest --numprocesses=auto --dist=loadfile \
	--no-loadscope-reorder

test: $(INSTALLED)
	$(TEST)

test-all: $(INSTALLED)
	$(TEST) -m "slow or not slow"

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

# Again only when what is to be installed has changed.
$(INSTALLED): setup.py pyproject.toml
	@echo "Installing into $(VENV): TensorFlow and more, about 3.5 GB."
	$(PYTHON) -c 'import sys; assert (3, 10) <= sys.version_info < (3, 13), \
	  f"Python 3.10 to 3.12 is needed, this is {sys.version}: make PYTHON=python3.11"'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --upgrade pip  # Python 3.10's is slow to resolve
	$(BIN)/python -m pip install --progress-bar off --editable '.[dev]'
	touch $@
