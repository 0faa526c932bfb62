# Two commands do everything on a fresh machine: `make demo` and `make test`. Both need Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
READY := $(VENV)/.ready
# Rounds of each random campaign of make faults: a number, or "full"; by default as many as its share of the gate allows.
ROUNDS ?=
# Inputs of make fuzz, of all targets together.
INPUTS ?= 1000000
# Seconds of requests by the OpenAPI documents; 0 for none.
API_SECONDS ?= 600
FUZZ := .venv-fuzz
FUZZ_READY := $(FUZZ)/.ready
# Tests of hosts, peers and restarts mostly wait, so there are more workers than processors.
AT_ONCE ?= $(shell expr 2 '*' "$$(getconf _NPROCESSORS_ONLN)")
RARELY_IMPORTED := boto3|botocore|cfnlint|kubernetes|moto|mypy|networkx|pip|samtranslator|setuptools|sympy
# The last mypy cache without errors. A new clone starts with a copy of it, so that mypy checks only files that differ. Two trees
# must not use one cache at the same time: each would then meet the types of the other.
MYPY_SEED := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/remuda/mypy.tar

.PHONY: help setup demo demo-clean test coverage check bench interop-peers interop interop-suite interop-controllers
.PHONY: e2e e2e-processes e2e-hosts e2e-k3s faults faults-kills faults-abuse fuzz clean

help: ## What can be made
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  %-14s %s\n", $$1, $$2}'

# Only what the program itself needs, for make demo. Everything else also needs the development tools.
$(RUNTIME): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Remuda needs Python 3.11 or newer; '$(PYTHON)' is $$($(PYTHON) --version). Try: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) examples/with_progress.py "Creating a virtual environment in $(VENV)" $(PYTHON) -m venv $(VENV)
	@$(PYTHON) examples/with_progress.py "Installing Remuda and its run-time dependencies" \
	  $(BIN)/python -m pip install --disable-pip-version-check --no-compile --editable .
	@touch $@

$(READY): $(RUNTIME)
	@$(PYTHON) examples/with_progress.py "Upgrading pip" $(BIN)/python -m pip install --upgrade 'pip>=25.1'
	@$(PYTHON) examples/with_progress.py "Installing the development tools" $(BIN)/python -m pip install --no-compile --group dev
	@# Compiled here, on all processors: else each of several test workers compiles all of it. Few tests import the rest.
	@$(BIN)/python -m compileall -q -j 0 -x '/($(RARELY_IMPORTED))/' $(VENV)/lib src tests/lab || true
	@touch $@

setup: $(READY) ## A virtual environment in .venv with Remuda and its development tools

demo: $(RUNTIME) ## From nothing to a live cluster, changed in place; DEMO_EXIT=1 cleans up and ends
	@$(BIN)/python examples/demo.py

demo-clean: $(RUNTIME) ## Stop what make demo has left running, and remove it
	@$(BIN)/python examples/demo.py clean

test: $(READY) ## Each part alone, and the controllers on the embedded engine: only Python is needed
	$(BIN)/python -m pytest tests/unit tests/controllers -q -n $(AT_ONCE) --dist worksteal

coverage: $(READY) ## What make test runs of each package, and which functions it never runs (slower than make test)
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest tests/unit tests/controllers -q -n $(AT_ONCE) --dist worksteal
	$(BIN)/python -m tests.lab.coverage_report

check: $(READY) ## Formatting, lint, types, import directions, names and docstrings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	@[ -e .mypy_cache ] || tar -xf $(MYPY_SEED) 2>/dev/null || true
	$(BIN)/mypy
	@mkdir -p $(dir $(MYPY_SEED)) && tar -cf $(MYPY_SEED).$$$$ .mypy_cache && mv $(MYPY_SEED).$$$$ $(MYPY_SEED) || true
	$(BIN)/lint-imports
	$(BIN)/python -m tests.lab.style_lint

interop-peers: ## Build the real upstream peers at their pinned versions (needs Go)
	interop/build

interop: interop-suite interop-controllers ## The real peers against ours, and the controllers on the real kube-apiserver

interop-suite: $(READY) interop-peers
	interop/packages registry || true # without it, what needs a registry skips and says so
	$(BIN)/python -m pytest tests/interop -q --durations 10 -n $(AT_ONCE) --dist loadfile --no-loadscope-reorder

interop-controllers: $(READY)
	interop/build etcd kube-apiserver kube-controller-manager
	$(BIN)/python -m pytest tests/controllers -q --durations 10 -n auto --dist loadfile --engine=kubernetes

e2e: e2e-processes e2e-hosts ## The whole program as its users run it; as root on Debian also on real hosts

e2e-processes: $(READY)
	$(BIN)/python -m pytest tests/e2e --ignore tests/e2e/hosts -q --durations 10 -n $(AT_ONCE) --dist loadfile --no-loadscope-reorder

e2e-hosts: $(READY)
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then interop/packages hosts || true; \
	  else echo "not root on Debian: tests on real hosts will skip, unless interop/packages hosts has been run" >&2; fi
	$(BIN)/python -m pytest tests/e2e/hosts -q --durations 10 -n $(AT_ONCE) --dist loadfile --no-loadscope-reorder

e2e-k3s: $(READY) ## Real k3s on real hosts: root on Debian, and Go, which builds it once
	@if [ "$$(id -u)" = 0 ] && interop/packages hosts k3s; then interop/build k3s kubectl; \
	  else echo "not root on Debian: nothing is built, and the tests will skip" >&2; fi
	$(BIN)/python -m pytest tests/e2e_k3s -q -x --durations 10

faults: faults-kills faults-abuse ## Kills, power cuts and hostile input; ROUNDS=full for whole campaigns

faults-kills: $(READY)
	interop/build linearizability || true # without Go, its campaign skips and says so; in CI it fails
	REMUDA_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest tests/faults --ignore tests/faults/abuse -q --durations 10 -n $(AT_ONCE) --dist worksteal

faults-abuse: $(READY)
	REMUDA_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest tests/faults/abuse -q --durations 10

$(FUZZ_READY): tests/fuzz/requirements.txt
	@$(PYTHON) -m venv --clear $(FUZZ) && \
	  $(FUZZ)/bin/python -m pip install --quiet --no-compile --require-hashes --only-binary :all: -r $< && touch $@ || \
	  { rm -rf $(FUZZ); echo "Atheris and schemathesis cannot be installed here: fuzzing goes on without them" >&2; }

fuzz: $(READY) ## Random input for every reader of untrusted bytes; INPUTS=20000 API_SECONDS=20 for a part
	@$(MAKE) --no-print-directory $(FUZZ_READY)
	@run=$(FUZZ)/bin/python; [ -x "$$run" ] || run=$(BIN)/python; export PYTHONPATH=src; \
	  "$$run" -m tests.fuzz --inputs $(INPUTS) && "$$run" -m tests.fuzz.api --seconds $(API_SECONDS)

bench: $(READY) ## Figures beside a real peer (needs Go and wrk), and a simulated fleet
	interop/build etcd kube-apiserver system-agent remotedialer
	$(BIN)/python -m bench
	$(BIN)/python -m bench.fleet
	$(BIN)/python -m bench.agent
	$(BIN)/python -m bench.machines
	$(BIN)/python -m bench.steady
	$(BIN)/python -m bench.tunnel
	$(BIN)/python -m bench.proxy

clean: ## Remove what was built here
	rm -rf $(VENV) $(FUZZ) .fuzz-crashes .coverage* .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist
