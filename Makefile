# make demo   set up and show the main job        make lint   ruff, mypy
# make test   set up and run the tests            make clean  forget what was built
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt constraints.txt $(shell find native src -name '*.?pp' -o -name '*.py')

# The pinned versions hold for the build's own environment as well.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test lint clean

demo: $(VENV)/installed
	$(BIN)/python examples/demo.py

test: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 tests README.md --doctest-glob='*.md'
	$(BIN)/python -m pytest -q --doctest-modules --pyargs hoyer

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy -p hoyer
	$(BIN)/mypy examples/*.py

$(VENV)/installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist out
