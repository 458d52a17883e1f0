# Every target installs what it needs into .venv: a bare machine needs only make and Python 3.11 or later with pip.
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
.PHONY: help test soak lowest matrix ecosystem conformance lint format coverage bench docs pictures demo workshop proof chaos failover release clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# Twice as many workers as most machines' cores: half of the time, a test waits for a server that starts or a lock that ends.
WORKERS ?= 4

test: $(READY) ## run the tests, on real databases too; every promise is covered once
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --tier quick $(ARGS)

soak: $(READY) ## run the rest: every planted bug, the other database, long searches; TEST_LONG=1 tries every line and cut
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --tier soak $(ARGS)

lint: $(READY) ## check style, spelling, types and import contracts; show the layers and the longest modules
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache
	@$(BIN)/python -c "import tomllib; rules = tomllib.load(open('pyproject.toml', 'rb'))['tool']['importlinter']['contracts']; print('Layers of the package:', len(rules[0]['layers']))"
	@echo "The ten longest modules:"
	@find flask_idempotency -name '*.py' -exec wc -l {} + | grep -v ' total$$' | sort -rn | head -n 10

format: $(READY) ## fix and format the code with ruff
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

coverage: $(READY) ## run all tests of both tiers and report uncovered branches of the package
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --cov --cov-report=term $(ARGS)

lowest: $(READY) ## run the tests of sessions and stores on the oldest supported SQLAlchemy
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv/lowest
	$(BIN)/uv pip install --quiet --python .venv/lowest/bin/python --editable . --group test "SQLAlchemy==2.0.30" "Flask-SQLAlchemy==3.1.*"
	.venv/lowest/bin/python -m pytest -n $(WORKERS) --dist loadfile --tier quick tests/stores tests/transaction/test_gallery.py tests/transaction/test_session.py tests/transaction/test_leftovers.py tests/transaction/test_plain_sqlalchemy.py $(ARGS)

matrix: $(READY) ## run the quick tests on every supported Python that is installed
	@$(BIN)/python -m tests.matrix $(ARGS)

ecosystem: $(READY) ## test the extension together with other Flask packages; see docs/works-with.md
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv/ecosystem
	$(BIN)/uv pip install --quiet --python .venv/ecosystem/bin/python --editable . --group ecosystem
	.venv/ecosystem/bin/python -m pytest -n $(WORKERS) tests/ecosystem $(ARGS)

conformance: $(READY) ## run the conformance tester against our servers and others; rewrites the results in docs/conformance.md
	$(BIN)/uv venv --quiet --clear --python $(BIN)/python .venv/conformance
	$(BIN)/uv pip install --quiet --python .venv/conformance/bin/python --editable . --group conformance
	@if command -v npm >/dev/null; then mkdir -p .venv/conformance-node && cp tests/conformance/peers/package.json .venv/conformance-node \
	&& npm install --prefix .venv/conformance-node --no-audit --no-fund --silent; else echo "Without npm, the servers on Express are left out." >&2; fi
	.venv/conformance/bin/python -m tests.conformance.peers $(ARGS)

bench: $(BENCH_READY) ## measure what protection costs; ARGS="size --records 10000000" runs one part, with ten million records
	$(BIN)/python -m tests.bench $(ARGS)

docs: $(READY) ## build the documentation into docs/_build/html; warnings are errors
	$(BIN)/sphinx-build -W --keep-going -b html docs docs/_build/html $(ARGS)

pictures: $(READY) ## take the pictures of the README and the demo page from the running shop; needs Chromium
	$(BIN)/python -m docs.pictures

demo: $(DEMO_READY) ## run the demo shop and print its address; accepts PORT=8080 and DATABASE_URL=postgresql://...
	@$(BIN)/python -m demo_shop $(ARGS)

workshop: $(DEMO_READY) ## list the labs of the workshop; LAB=1 begins the first, CHECK=1 checks your code
	@$(BIN)/python -m docs.workshop $(if $(CHECK),check $(CHECK),$(if $(LAB),start $(LAB))) $(ARGS)

proof: $(READY) ## load the demo shop with retries, then audit it; accepts SECONDS, USERS, SEED and STORE=sqlite or mariadb
	@$(BIN)/python -m loadtests proof $(RUN) $(ARGS)

chaos: $(READY) ## like proof, while workers are killed and paused, connections cut and the database crashes; accepts the same
	@$(BIN)/python -m loadtests chaos $(RUN) $(ARGS)

failover: $(FAILOVER_READY) ## kill the leader of a PostgreSQL cluster under load, then audit; accepts SECONDS, USERS, SEED and KILLS
	@$(BIN)/python -m loadtests failover $(filter-out --store $(STORE),$(RUN)) $(if $(KILLS),--kills $(KILLS)) $(ARGS)

release: $(READY) ## build the distributions, check them, and follow the quickstart with the wheel alone; publishes nothing
	@$(BIN)/python -m tests.release

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
	@echo "Installing the package and its tools into .venv (repeated only when pyproject.toml changes)."
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1" "uv>=0.7"
	$(BIN)/uv pip install --python $(BIN)/python --editable . --group dev || $(BIN)/python -m pip install --editable . --group dev
	@touch $@

# The shop needs few packages, and none of the tools.
$(DEMO_READY): pyproject.toml | $(BIN)/python
	@echo "Installing the demo shop into .venv (repeated only when pyproject.toml changes)."
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1" "uv>=0.7"
	$(BIN)/uv pip install --python $(BIN)/python --editable ".[demo]" || $(BIN)/python -m pip install --editable ".[demo]"
	@touch $@

# What we are compared with is not needed to be measured: without it the table has fewer rows, and says so.
$(BENCH_READY): $(READY)
	@($(BIN)/uv pip install --python $(BIN)/python --group bench || $(BIN)/python -m pip install --group bench) \
	&& touch $@ || echo "The dependency group bench could not be installed: DBOS is left out of the table." >&2

# Patroni and etcd are needed by nothing else.
$(FAILOVER_READY): $(READY)
	@echo "Installing Patroni and etcd into .venv (repeated only when pyproject.toml changes)."
	$(BIN)/uv pip install --python $(BIN)/python --group failover || $(BIN)/python -m pip install --group failover
	@touch $@
