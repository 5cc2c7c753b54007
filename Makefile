# Every target sets up what it needs: a .venv with the exact, hashed versions of requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
UV := $(BIN)/uv

.PHONY: demo test coverage check fmt lock soak bench lock-bench clean

demo: $(READY)
	$(BIN)/roundelay demo

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist loadfile

# What failed beside others, each alone: tests that kill processes share two cores with whatever else runs.
test-failed: $(READY)
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none

# The core is small enough to be tested whole: every branch of loop/, by the tests of loop/ alone.
coverage: $(READY)
	$(BIN)/python -m coverage run --source=roundelay_worker.loop -m pytest tests/loop
	$(BIN)/python -m coverage report --show-missing --fail-under=100

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

$(READY): requirements.lock requirements-uv.lock shared/pyproject.toml worker/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Roundelay needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' || { echo "Python's venv module is missing (Debian: apt-get install python3-venv)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	test -x $(UV) || $(BIN)/python -m pip install --quiet --require-hashes -r requirements-uv.lock
	$(UV) pip install --quiet --python $(BIN)/python --require-hashes -r requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e shared -e worker
	@touch $(READY)

# The versions of today, with hashes; --no-emit-index-url keeps registry hosts out of the file.
lock:
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --upgrade \
	  --group pyproject.toml:dev --extra postgres --extra sql shared/pyproject.toml worker/pyproject.toml -o requirements.lock \
	  --no-emit-package roundelay --no-emit-package roundelay-worker
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header \
	  -c requirements.lock --extra postgres --extra sql shared/pyproject.toml worker/pyproject.toml -o deploy/requirements.lock \
	  --no-emit-package roundelay --no-emit-package roundelay-worker
	grep -A 99 '^uv==' requirements.lock | awk 'NR>1 && /^[a-z]/{exit} {print}' > requirements-uv.lock

clean:
	rm -rf $(VENV) $(BENCH_VENV)

# A chaos soak: SOAK="--messages 1000 --minutes 10" is some twenty minutes on two cores, SOAK="--help" tells of the rest.
SOAK ?=

soak: $(READY)
	$(BIN)/python -m soak $(SOAK)

# Roundelay beside what a user would pick instead; the full run takes about an hour on two cores.
# BENCH="--short" is the form for CI, BENCH="--help" tells of the rest.
BENCH ?= --page
BENCH_VENV := .venv-bench
BENCH_READY := $(BENCH_VENV)/.ready

bench: $(BENCH_READY)
	$(BENCH_VENV)/bin/python -m bench $(BENCH)

$(BENCH_READY): $(READY) requirements-bench.lock
	test -x $(BENCH_VENV)/bin/python || $(PYTHON) -m venv --without-pip $(BENCH_VENV)
	$(UV) pip install --quiet --python $(BENCH_VENV)/bin/python --require-hashes -r requirements-bench.lock
	$(UV) pip install --quiet --python $(BENCH_VENV)/bin/python --no-deps --no-build-isolation -e shared -e worker
	@touch $(BENCH_READY)

# What both share has the versions of requirements.lock.
lock-bench: $(READY)
	$(UV) pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header --upgrade \
	  --group pyproject.toml:bench --extra postgres --extra sql shared/pyproject.toml worker/pyproject.toml -c requirements.lock \
	  -o requirements-bench.lock --no-emit-package roundelay --no-emit-package roundelay-worker
