# Every target sets itself up in .venv: a bare machine needs make and Python 3.11 or later with pip, nothing else.
# `make` alone lists the targets. Extra arguments for a tool go into ARGS: make test ARGS="-k replay -x"

PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
READY := .venv/.ready
BENCH_READY := .venv/.bench-ready
DEMO_READY := .venv/.demo-ready
FAILOVER_READY := .venv/.failover-ready
# Spelt out: bash has a SECONDS of its own, and would pass that one on.
RUN = $(if $(SECONDS),--seconds $(SECONDS)) $(if $(USERS),--users $(USERS)) $(if $(SEED),--seed $(SEED)) $(if $(STORE),--store $(STORE))

# pip trusts the machine's own certificates; where there are any, let uv trust them too.
ifneq ($(wildcard /etc/ssl/certs/ca-certificates.crt),)
export UV_SYSTEM_CERTS ?= true
endif

.DEFAULT_GOAL := help
.PHONY: help test lowest matrix ecosystem lint format coverage bench docs demo proof chaos failover clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

test: $(READY) ## run every test, real databases included
	$(BIN)/python -m pytest -n 2 --dist loadfile $(ARGS)

lint: $(READY) ## check style, types and import contracts; show the ten longest modules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache
	@echo "The ten longest modules:"
	@find flask_idempotency -name '*.py' -exec wc -l {} + | grep -v ' total$$' | sort -rn | head -n 10

format: $(READY) ## rewrite the code as ruff would have it
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

coverage: $(READY) ## run every test and show which branches of the package none of them takes
	$(BIN)/python -m pytest -n 2 --dist loadfile --cov --cov-report=term $(ARGS)

lowest: $(READY) ## run the tests of sessions and stores on the oldest supported SQLAlchemy
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv/lowest
	$(BIN)/uv pip install --quiet --python .venv/lowest/bin/python --editable . --group test "SQLAlchemy==2.0.30" "Flask-SQLAlchemy==3.1.*"
	.venv/lowest/bin/python -m pytest -n 2 --dist loadfile tests/stores tests/transaction/test_gallery.py tests/transaction/test_session.py tests/transaction/test_leftovers.py tests/transaction/test_plain_sqlalchemy.py $(ARGS)

matrix: $(READY) ## run the quick tests on every supported Python that this machine has
	@$(BIN)/python -m tests.matrix $(ARGS)

ecosystem: $(READY) ## run the apps that are built with the packages that Flask people combine; see docs/works-with.md
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv/ecosystem
	$(BIN)/uv pip install --quiet --python .venv/ecosystem/bin/python --editable . --group ecosystem
	.venv/ecosystem/bin/python -m pytest -n 2 tests/ecosystem $(ARGS)

bench: $(BENCH_READY) ## measure what protection costs; ARGS="size --records 10000000" for one part, ten million records
	$(BIN)/python -m tests.bench $(ARGS)

docs: $(READY) ## build the documentation into docs/_build/html; warnings are errors
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html $(ARGS)

demo: $(DEMO_READY) ## run the demo shop and print where it is; PORT=8080 and DATABASE_URL=postgresql://... are heeded
	@$(BIN)/python -m demo_shop $(ARGS)

proof: $(READY) ## flood the shop with retries and audit it; SECONDS, USERS, SEED and STORE=sqlite are heeded
	@$(BIN)/python -m loadtests proof $(RUN) $(ARGS)

chaos: $(READY) ## the same while workers, connections and databases are killed, paused and cut; heeds the same
	@$(BIN)/python -m loadtests chaos $(RUN) $(ARGS)

failover: $(FAILOVER_READY) ## kill the leader of a PostgreSQL cluster under load, then audit; SECONDS, USERS, SEED, KILLS are heeded
	@$(BIN)/python -m loadtests failover $(filter-out --store $(STORE),$(RUN)) $(if $(KILLS),--kills $(KILLS)) $(ARGS)

clean: ## remove the virtual environment, build results and caches
	rm -rf .venv dist docs/_build htmlcov .coverage .coverage.* .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Debian's python3 alone has venv but not the pip to put inside; its python3-pip can install one from outside.
$(BIN)/python:
	@echo "Setting up .venv with $$($(PYTHON) --version)."
	if $(PYTHON) -c "import ensurepip; ensurepip.version()" 2>/dev/null; then $(PYTHON) -m venv .venv; \
	else $(PYTHON) -m venv --without-pip .venv && $(PYTHON) -m pip --python $@ install pip; fi || { rm -rf .venv; exit 1; }

# uv is quick; pip, which a machine may have been given an index of its own for, is the second try.
$(READY): pyproject.toml | $(BIN)/python
	@echo "Installing the package and its tools into .venv; done again only when pyproject.toml changes."
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1" "uv>=0.7"
	$(BIN)/uv pip install --python $(BIN)/python --editable . --group dev || $(BIN)/python -m pip install --editable . --group dev
	@touch $@

# The shop needs few packages, and none of the tools.
$(DEMO_READY): pyproject.toml | $(BIN)/python
	@echo "Installing the demo shop into .venv; done again only when pyproject.toml changes."
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1" "uv>=0.7"
	$(BIN)/uv pip install --python $(BIN)/python --editable ".[demo]" || $(BIN)/python -m pip install --editable ".[demo]"
	@touch $@

# What we are compared with is not needed to be measured: without it the table has fewer rows, and says so.
$(BENCH_READY): $(READY)
	@($(BIN)/uv pip install --python $(BIN)/python --group bench || $(BIN)/python -m pip install --group bench) \
	&& touch $@ || echo "The dependency group bench could not be installed: DBOS is left out of the table." >&2

# Patroni and etcd are needed by nothing else.
$(FAILOVER_READY): $(READY)
	@echo "Installing Patroni and etcd into .venv; done again only when pyproject.toml changes."
	$(BIN)/uv pip install --python $(BIN)/python --group failover || $(BIN)/python -m pip install --group failover
	@touch $@
