# Everything starts here: `make demo` and `make test` set up what they need on a fresh Debian or Ubuntu.

PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
# Most tests wait for a ttl to pass, so more of them run at once than there are cores. One file stays with one worker, which
# starts the servers that the file asks for; tests/conftest.py puts the files into an order that mixes waiting and work.
PARALLEL ?= -n 11 --dist loadfile --no-loadscope-reorder
# The tests start some thousand Pythons; each would compile the library anew if this were set in the environment.
unexport PYTHONDONTWRITEBYTECODE
RUN    := PYTHONPATH=. $(BIN)/python

.DEFAULT_GOAL := help
.PHONY: help python setup servers demo test test-quick test-all check fmt lint types sim goals conformance differential faults mutants mutant-table oversell counters lab lab-updates models bench docs picture site site-serve clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

setup: $(VENV)/.ready  ## a virtual environment with everything the targets below need

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "leasehold needs Python 3.11 or newer as $(PYTHON); say PYTHON=/path/to/python3.11, or: apt install python3"; exit 1; }

$(VENV)/.ready: pyproject.toml constraints.txt | python
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { \
	  echo "this Python cannot make virtual environments; on Debian and Ubuntu: apt install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

servers:  ## the servers that the tests start, as Debian packages
	tools/servers.sh

demo: python  ## the main job, shown on the embedded store, in half a minute; needs no package and no server
	PYTHONPATH=src $(PYTHON) -m leasehold demo

# Eleven workers import all tests at once; each would compile and rewrite all of them, because none has done it yet.
$(VENV)/.compiled: $(VENV)/.ready $(shell find src tests verification -name '*.py')
	$(RUN) -m pytest --collect-only -q tests/[a-o]*/ > /dev/null & $(RUN) -m pytest --collect-only -q tests/[p-z]*/ > /dev/null & wait
	@touch $@

test: setup servers $(VENV)/.compiled  ## all tests, short forms of the long ones included
	$(RUN) -m pytest $(PARALLEL) || $(RUN) -m tests.second_look

test-quick: setup  ## the inner loop: under a minute
	$(RUN) -m pytest -x -q tests/unit tests/architecture tests/faces tests/contract/test_memory.py tests/contract/test_sqlite.py

test-all: test sim conformance differential faults mutants models counters oversell  ## everything, with the long forms

check: lint types test  ## exactly what the continuous integration runs

fmt: setup  ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: setup  ## style
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: setup  ## types
	$(BIN)/mypy

sim: setup  ## the simulation, long form
	$(RUN) -m verification.simulation --seeds 20000
	$(RUN) -m verification.simulation --store sqlite --seeds 10000
	$(RUN) -m verification.simulation --store redis --seeds 5000
	$(RUN) -m verification.simulation --store mysql --seeds 3000
	$(RUN) -m verification.simulation --store nats --seeds 3000
	$(RUN) -m verification.simulation --store etcd --seeds 3000
	$(RUN) -m verification.simulation --store zookeeper --seeds 2000
	$(RUN) -m verification.simulation --store redlock --seeds 1000
	$(RUN) -m verification.simulation --program jobs --seeds 5000
	for store in sqlite redis mysql etcd nats; do $(RUN) -m verification.simulation --program jobs --store $$store --seeds 500 || exit 1; done

goals: setup  ## a million fenced updates without a lost one, a million grants without a fence twice; about an hour of processor time
	$(RUN) -m verification.simulation.goals --updates 1000000 --jobs 2
	$(RUN) -m verification.simulation.goals --grants 1000000 --forgotten 1000 --jobs 2

conformance: setup servers  ## the simulated servers against real ones, request by request, long form
	$(RUN) -m verification.simulation.redis.conformance --operations 100000
	$(RUN) -m verification.simulation.redis.conformance --operations 100000 --server valkey
	$(RUN) -m verification.simulation.conformance --store redlock --operations 100000
	$(RUN) -m verification.simulation.conformance --store etcd --operations 100000
	$(RUN) -m verification.simulation.conformance --store mysql --operations 100000
	$(RUN) -m verification.simulation.conformance --store nats --operations 100000
	$(RUN) -m verification.simulation.conformance --store zookeeper --operations 100000

differential: setup servers  ## random requests to SQLite, PostgreSQL and Redis, compared with the rules answer by answer, long form
	$(RUN) -m verification.differential --strict --seeds 300

faults: setup servers  ## the long forms of the fault tests: packet loss, mixed fleets, node faults, kills, every line interrupted
	LEASEHOLD_LONG_FAULTS=1 $(RUN) -m pytest -q tests/stores/redis/test_redis_packet_loss.py tests/stores/redis/test_redis_compat.py \
	  tests/stores/redlock/test_redlock_fences.py tests/processes/test_cli_watchdog.py tests/processes/test_once_processes.py tests/processes/test_partition_processes.py \
	  tests/stores/sqlite/test_sqlite_processes.py tests/processes/test_reservation_processes.py tests/processes/test_optimistic_processes.py
	LEASEHOLD_LONG_FAULTS=1 $(RUN) -m pytest -q -n 4 --dist loadfile tests/contract
	LEASEHOLD_LONG_FAULTS=1 $(RUN) -m pytest -q -n 4 --dist loadfile tests/sql tests/simulation tests/lab tests/benchmarks

mutants: setup  ## known bugs, planted again: each must be caught
	$(RUN) -m verification.mutants --record

mutant-table: setup  ## the page of which check catches which bug, from the last hunt
	$(RUN) -m verification.mutants.table

oversell: setup servers  ## 10 tickets and 500 buyers over five processes, 50 times in each way on each database
	$(RUN) -m benchmarks.ticket_sale --runs 50

counters: setup servers  ## lost updates under pauses, 100,000 at each level of isolation; an hour
	$(RUN) -m verification.lab.counters
	$(RUN) -m verification.lab.counters --database mariadb --updates 20000

# SHORT=1: the few cells that run with the tests. SECONDS: of disturbance in each cell. AT_ONCE=2: two cells side by
# side, and alone again what that may have spoiled. WORDS: further ones, such as --again.
lab: setup servers  ## real servers and clients under faults, ours and other libraries, with a report; goes on after a break
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	$(RUN) -m verification.lab run --folder build/lab $(if $(SHORT),--short,--seconds $(or $(SECONDS),3)) \
	  --at-once $(or $(AT_ONCE),1) $(WORDS); \
	  code=$$?; $(RUN) -m verification.lab report --folder build/lab --also build/lab-updates; exit $$code

lab-updates: setup servers  ## 100,000 fenced updates under pauses, kills, cuts, wrong clocks and failovers; an hour
	$(RUN) -m verification.lab run --folder build/lab-updates --library leasehold --updates 100000 \
	  --at-once $(or $(AT_ONCE),1); \
	  code=$$?; $(RUN) -m verification.lab report --folder build/lab-updates; exit $$code

models: setup  ## all states of the protocols' models, long form
	$(RUN) -m verification.models

bench: setup  ## measurements against the floor and against other libraries
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[bench]'
	$(RUN) -m benchmarks

picture: setup  ## the picture of the README, drawn from a real run of the demonstration
	$(RUN) tools/draw_demo.py

docs: setup  ## redraw the parts of the documents that come from the code
	$(RUN) tools/draw_docs.py
	$(RUN) tools/draw_badges.py
	$(RUN) tools/blocking_docstrings.py
	$(RUN) -m benchmarks.page docs/reference/figures.md

site: setup  ## the documentation as a site, in build/site; a link that leads nowhere fails
	NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build --strict --quiet

site-serve: site  ## the same, on http://127.0.0.1:8000
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site 8000

clean:  ## remove what the targets made
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
