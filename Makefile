# Every target runs in .venv, created on first use from requirements/dev.txt. `make help` lists them.

PYTHON ?= python3
# Number of parallel test processes: two more than two cores, because many tests wait for processes.
JOBS := 4
# Test files or folders; default: all.
TESTS :=

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
# Created last, so that an interrupted set-up runs again.
INSTALLED := $(VENV)/.infeed-ready
READY := $(VENV)/.infeed-native-ready
FRAMEWORKS_READY := $(VENV)/.infeed-frameworks-ready
CODE := client server plugins native tests examples benchmarks deploy tools

# The same default as in `infeed`: TensorFlow's relevant errors are raised as exceptions.
export TF_CPP_MIN_LOG_LEVEL ?= 3
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests start dozens of processes; without bytecode files, each would compile every module again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help
help: ## Show this list of targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

$(INSTALLED): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 11) else \
	  "make needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + "; try make PYTHON=python3.12")'
	@echo "Setting up $(VENV) from requirements/dev.txt (TensorFlow is large: about a minute, and 2 GB of disk)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --requirement requirements/dev.txt
	@# The build requirements are pinned in dev.txt, so nothing else is downloaded.
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

# The JPEG decoder is optional: without it TensorFlow decodes, with the same bits.
$(READY): $(INSTALLED) $(wildcard native/*.* native/src/* native/infeed_jpeg/*.py)
	@if ! command -v $(CC) >/dev/null; then echo "No C compiler ($(CC)): TensorFlow decodes JPEGs, in twice the time; install gcc, and begin with make clean"; \
	elif ! CC=$(CC) $(BIN)/python -m pip install --quiet --no-deps --no-build-isolation ./native; then \
	  echo "native/ does not compile: TensorFlow decodes JPEGs"; fi
	@touch $@

.PHONY: setup
setup: $(READY) ## Create .venv; every other target does so when needed.

.PHONY: demo
demo: $(READY) ## Serve an embedded data set and train a small model on it.
	@$(BIN)/infeed demo

# Test files run in the order of tests/harness/hooks/longest_first.py, not by their number of tests.
PYTEST := $(BIN)/python -m pytest -n $(JOBS) --max-worker-restart 3 \
  --dist loadfile --no-loadscope-reorder

FRAMEWORKS := grain jax keras torch
# Run by test-frameworks.
LEFT_OUT := --ignore=tests/examples $(addprefix --ignore=tests/plugins/frameworks/,$(FRAMEWORKS))
# Run by test-pages and test-all.
PAGES := tests/docs tests/browser

# Without passes over each graph, tests of graphs take half the time; test-all has them. Grappler is
# left out by tests/harness/hooks/quick_graphs.py, and oneDNN here.
.PHONY: test
test: $(READY) ## Run all tests not marked slow; TESTS=tests/client runs a part.
	@TF_ENABLE_ONEDNN_OPTS=0 $(PYTEST) -m "not slow" --hypothesis-profile=quick \
	  $(or $(TESTS),$(LEFT_OUT) $(addprefix --ignore=,$(PAGES)))

.PHONY: test-pages
test-pages: ## Run what the documents show, draw their pictures and site, and open the dashboard in Chromium.
	@$(MAKE) --no-print-directory test TESTS="$(PAGES)"

.PHONY: test-all
test-all: $(READY) ## Run all tests, slow ones too; TESTS=... runs a part.
	@$(PYTEST) $(or $(TESTS),$(LEFT_OUT))

$(FRAMEWORKS_READY): $(READY) requirements/frameworks.txt
	@echo "Adding JAX, PyTorch and others from requirements/frameworks.txt (2 GB of disk, more with CUDA)"
	@$(BIN)/python -m pip install --quiet --requirement requirements/frameworks.txt
	@touch $@

# The tests of the adapters and the examples. Each framework has a process of its own:
# JAX reads its flags once, and forks of a process with JAX's threads can hang.
ADAPTER_TESTS := $(addprefix tests/plugins/frameworks/,$(FRAMEWORKS))

.PHONY: test-frameworks
test-frameworks: $(FRAMEWORKS_READY) ## Run the tests of the adapters with JAX, PyTorch, Grain, Orbax and others.
	@for tests in $(or $(TESTS),$(ADAPTER_TESTS) tests/examples tests/docs/test_recipes.py); do $(PYTEST) $$tests; done

WRITERS := build/writers
WRITERS_READY := $(WRITERS)/.infeed-ready

# It sees the packages of .venv, TensorFlow and PyTorch among them.
$(WRITERS_READY): $(FRAMEWORKS_READY) requirements/writers.txt
	@$(BIN)/python -m venv $(WRITERS)
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
	  >"$$($(WRITERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/infeed-venv.pth"
	@$(WRITERS)/bin/python -m pip install --quiet --no-deps --requirement requirements/writers.txt
	@touch $@

.PHONY: test-writers
test-writers: $(WRITERS_READY) ## Read files that webdataset, Mosaic Streaming and others wrote.
	@INFEED_TEST_WRITERS=$(CURDIR)/$(WRITERS)/bin/python $(PYTEST) $(or $(TESTS),tests/plugins/formats/writers)

.PHONY: durations
durations: $(READY) ## Measure the test files' durations, which set their order.
	@$(PYTEST) --write-durations $(TESTS)

# DATA_DIR has images and labels.csv; LOADTEST=--host is for an engine without a bridge network.
.PHONY: loadtest
loadtest: ## Run two servers and a load test in containers; the report is in build/loadtest.
	@deploy/check.sh --loadtest $(LOADTEST)

.PHONY: bench
bench: $(READY) ## Compare infeed with its peers (half an hour); see benchmarks/README.md.
	@$(BIN)/python -m benchmarks $(BENCH)

.PHONY: chaos
chaos: $(READY) ## Disturb servers, kill trainers, compare every batch (quarter of an hour).
	@$(BIN)/python -m tests.stress.chaos $(CHAOS)

.PHONY: simulate
simulate: $(READY) ## Run feeds through 100,000 simulated faults (four minutes); SEED=n replays a seed.
	@$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED) --seeds 1) $(SIMULATE)

.PHONY: proxies
proxies: $(READY) ## Test deploy/proxies with each proxy that is installed (two minutes).
	@$(BIN)/python -m pytest -n 0 -rsP tests/proxies tests/foreign

.PHONY: fuzz
fuzz: $(READY) ## Send malformed inputs to a server, a client and the JPEG decoder (twenty minutes).
	@$(BIN)/python -m pytest -n 2 --dist loadfile --hypothesis-profile=fuzz -m 'not slow' \
	  tests/stress/fuzz $(FUZZ)
	@$(BIN)/python -m pytest -n 0 --hypothesis-profile=fuzz tests/native/test_fuzz.py

.PHONY: soak
soak: $(READY) ## Check that memory does not grow (eight minutes); see benchmarks/README.md.
	@INFEED_SOAK_SCALE=2.5 $(BIN)/python -m pytest -n 0 -rP tests/stress/soak $(SOAK)

.PHONY: lint
lint: $(READY) ## Check style, types, prose, the .proto files and the generated stubs.
	@$(BIN)/ruff check $(wildcard $(CODE))
	@$(BIN)/ruff format --check $(wildcard $(CODE))
	@$(BIN)/mypy client/infeed server/infeed_server plugins/*/infeed_* native/infeed_jpeg
	@$(BIN)/python tools/prose.py
	@$(BIN)/python -m tools.docs --check
	@$(BIN)/buf lint
	@PYTHON=$(BIN)/python tools/stubs.sh check

.PHONY: fmt
fmt: $(READY) ## Format the code and apply ruff's fixes.
	@$(BIN)/ruff check --fix $(wildcard $(CODE))
	@$(BIN)/ruff format $(wildcard $(CODE))

.PHONY: docs
docs: $(READY) ## Write the tables of the documents, the notebooks' twins, and the site to build/site.
	@$(BIN)/python -m tools.docs
	@$(BIN)/python -m tools.notebooks
	@$(BIN)/python -m tools.site

.PHONY: proto
proto: $(READY) ## Regenerate the stubs under client/infeed/v1.
	@PYTHON=$(BIN)/python tools/stubs.sh write

.PHONY: pin
pin: $(READY) ## Write the versions installed in .venv to requirements/dev.txt.
	@$(BIN)/python tools/pin.py >requirements/dev.txt.new
	@mv requirements/dev.txt.new requirements/dev.txt

# Interpreters to try the wheel with; those that are not installed are left out.
PYTHONS := python3.10 python3.11 python3.12 python3.13
# More options of tools/package.py, such as --release.
PACKAGE :=

.PHONY: package
package: $(READY) ## Build sdist and wheel, and train with the wheel in clean environments; PYTHONS=...
	@$(BIN)/python -m tools.package $(addprefix --python ,$(PYTHONS)) $(PACKAGE)

.PHONY: sbom
sbom: $(READY) ## The same with the server and TensorFlow; list what it contains in dist/infeed.cdx.json.
	@$(BIN)/python -m tools.package --server $(BIN)/python --sbom $(PACKAGE)

.PHONY: clean
clean: ## Remove .venv, caches and build output.
	rm -rf $(VENV) build dist native/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find client server plugins native tests examples benchmarks deploy tools -name __pycache__ -prune -exec rm -rf {} +
