# One target for each thing a developer does; each sets up what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements/dev.lock
# Compiled once, as pip does with what it installs: where nobody may write beside the sources, or
# PYTHONDONTWRITEBYTECODE is set, each start would compile them anew, at half a second of CPU.
PACKAGES := binder dispatcher proto scheduler_shard stretto
.DEFAULT_GOAL := help
.PHONY: assertions coverage quota simulate matrix help install check format test proto golden differential model reliability mutants rights races bench demo lock sbom audit clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  %-12s %s\n", $$1, $$2}'

$(VENV)/.installed: $(LOCK) pyproject.toml
	@echo "Setting up $(VENV) from $(LOCK); one to five minutes, by the speed of the package index …"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or later is needed; set PYTHON=…"; exit 2; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@$(BIN)/python -m compileall -q $(PACKAGES)
	@touch $@

install: $(VENV)/.installed ## make .venv with the `stretto` command

check: install ## format, lint, types, import contracts, module sizes, spelling, freshness of generated code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/python tests/checks/house_rules.py
	$(BIN)/python proto/generate.py --check
	$(BIN)/python tests/checks/supply_chain.py
	$(BIN)/python tests/checks/idle_tests.py
	$(BIN)/python tests/checks/assertions.py

assertions: install ## how densely the brain modules check themselves, module by module
	$(BIN)/python tests/checks/assertions.py --all

format: install ## format and mend what can be mended by machine
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

test: check ## run the checks, then all tests (ARGS="-k …" to narrow)
	$(BIN)/python -m pytest $(ARGS)

proto: install ## generate the code beside proto/*.proto
	$(BIN)/python proto/generate.py

golden: install ## check golden cases against the placement code: [CASES="PATH…"], all of tests/golden without
	$(BIN)/stretto golden $(or $(CASES),tests/golden)

differential: install ## fresh worlds, decided by kube-scheduler's code and by ours: PODS=10000 [ARGS="--seed 1 …"]
	$(BIN)/python -m tests.golden.differential --pods $(or $(PODS),1000) $(ARGS)

simulate: install ## all roles in virtual time with faults: make simulate [RUNS=1000|REPLAY=1000] [SCENARIO=brief|short|gangs|half-jobs|preempting-gangs|quota|jobs|bulky|standbys|standbys-jobs|standbys-gangs|standbys-apart] [ARGS="--first 0 --story SEED"]
	$(BIN)/python -m tests.simulation --runs $(or $(REPLAY),$(RUNS),1000) $(if $(REPLAY),--replay) --scenario $(or $(SCENARIO),$(if $(REPLAY),brief,faults)) $(ARGS)

quota: install ## random trees of queues under random load, in simulated minutes: make quota [MINUTES=10000]
	$(BIN)/python -m tests.quota --minutes $(or $(MINUTES),10000) $(ARGS)

races: install ## the last of everything at four shards, one winner each: ROUNDS=10000 [ARGS="--seed 1"]
	$(BIN)/python -m tests.races --rounds $(or $(ROUNDS),10000) $(ARGS)

matrix: install ## the fault matrix on real processes: make matrix [ROWS="1 4 35"] [SEEDS=20] [JOBS=2] [ARGS="--first 1 --keep"]
	$(BIN)/python -m tests.matrix --rows "$(ROWS)" --seeds $(or $(SEEDS),1) --jobs $(or $(JOBS),1) $(ARGS)

model: install ## explore the reserve-bind-recover protocol and its broken variants
	$(BIN)/python -m tests.protocol

reliability: install ## figures of docs/reliability.md: WHAT="late-binds lost-tails rebuild takeover hostile degraded gangs largest-gang chaos soak" [ARGS="--pods 2000 --seed 1"]
	$(BIN)/python -m tests.reliability $(or $(WHAT),late-binds lost-tails rebuild takeover chaos) $(ARGS)

rights: install ## rights that deploy/ grants = rights that are used, by the API server's audit log: [ARGS="-k …"]
	$(BIN)/python -m tests.e2e.rights $(ARGS)

mutants: install ## make faults in a copy of the tree; each must be noticed by a test: [NAME="part of a name"] [MACHINE=200 SEED=1] [JOBS=2]
	$(BIN)/python -m tests.mutants "$(NAME)" $(if $(MACHINE),--machine $(MACHINE)) $(if $(SEED),--seed $(SEED)) --jobs $(or $(JOBS),1)

coverage: install ## branches that the tests take, of core and whole: [ARGS="tests/binder tests/dispatcher"]
	$(BIN)/python -m tests.checks.coverage_figures $(ARGS)

bench: install ## run the benchmarks: make bench [WHAT="decide ledger pipeline side-by-side"]
	$(BIN)/python -m bench $(WHAT)

demo: install ## the main job on one machine: simulated cluster, all roles, a real trace, a report
	$(BIN)/stretto demo $(ARGS)

lock: ## resolve requirements/*.lock afresh (needs uv)
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --extra local pyproject.toml -o requirements/run.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --extra local --group dev pyproject.toml -o requirements/dev.lock

	$(MAKE) sbom

sbom: install ## write requirements/sbom.cdx.json (CycloneDX), the bill of materials of requirements/run.lock
	$(BIN)/python tests/checks/supply_chain.py --write

audit: ## known flaws in what is locked; needs the network, and installs pip-audit into .venv-audit
	$(PYTHON) -m venv .venv-audit
	.venv-audit/bin/python -m pip install --quiet --disable-pip-version-check "pip-audit>=2.9,<3"
	.venv-audit/bin/pip-audit --require-hashes --disable-pip --strict -r requirements/run.lock
	.venv-audit/bin/pip-audit --require-hashes --disable-pip --strict -r requirements/dev.lock

clean: ## remove what the targets made
	rm -rf $(VENV) .venv-audit out build *.egg-info .pytest_cache .mypy_cache .ruff_cache
