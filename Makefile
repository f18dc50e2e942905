# `make run` and `make test` are all that a new user needs; the other targets are their steps.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LIBRARY ?= examples/library
WHEELS := build/wheels
MODEL_SOURCES := $(shell find packages/philorag-e5-small -type f -not -path '*/__pycache__/*' -not -path '*/build/*')

# The model's wheel is built while the dependencies are installed.
MAKEFLAGS += --jobs=2
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: run install test bench check lint types layers format docs lock clean

run: install ## ingest LIBRARY, ask it questions over MCP, print the client configuration
	@$(BIN)/python examples/tour.py "$(LIBRARY)"

install: $(VENV)/.installed

test: $(VENV)/.installed-dev ## the whole test suite
	$(BIN)/python -m pytest

check:
	$(MAKE) --jobs=1 lint types layers

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

layers: $(VENV)/.installed-dev
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed-dev ## renew what is generated: .env.example, docs/settings.md, docs/tools.md
	$(BIN)/python -m philorag.settings_reference
	$(BIN)/python -m philorag.tools_reference

lock: $(VENV)/.installed-dev ## renew the lock files
	$(PYTHON) -m venv build/uv && build/uv/bin/pip install -q uv
	build/uv/bin/uv pip compile pyproject.toml --generate-hashes --universal --python-version 3.11 \
	  --no-emit-package philorag-e5-small --no-emit-index-url --no-header -q --upgrade -o requirements.lock
	build/uv/bin/uv pip compile pyproject.toml --group dev -c requirements.lock --generate-hashes --universal \
	  --python-version 3.11 --no-emit-package philorag-e5-small --no-emit-index-url --no-header -q -o requirements-dev.lock

clean:
	rm -rf $(VENV) build .philorag

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

# Building the model's wheel takes half a minute, so it is built once for its sources.
$(WHEELS)/.model: $(VENV)/bin/python $(MODEL_SOURCES)
	rm -rf $(WHEELS) && mkdir -p $(WHEELS)
	$(BIN)/pip wheel -q --no-deps -w $(WHEELS) ./packages/philorag-e5-small
	touch $@

$(VENV)/.dependencies: requirements.lock $(VENV)/bin/python
	$(BIN)/pip install -q --require-hashes -r requirements.lock
	touch $@

$(VENV)/.installed: $(VENV)/.dependencies $(WHEELS)/.model pyproject.toml
	$(BIN)/pip install -q --no-deps --force-reinstall $(WHEELS)/*.whl
	$(BIN)/pip install -q --no-deps -e .
	touch $@

$(VENV)/.installed-dev: requirements-dev.lock $(VENV)/.installed
	$(BIN)/pip install -q --require-hashes -r requirements-dev.lock
	touch $@

bench: $(VENV)/.installed-dev ## measure what philorag promises; PHILORAG_TEST_DATA names the folder of texts
	$(BIN)/python -m benchmarks --write
