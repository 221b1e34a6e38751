# Targets for people and for CI. Everything happens in .venv; nothing is installed when nothing has changed.
# python3.11 when there is one, because it is what the project is tested with.
PYTHON ?= $(shell for python in python3.11 python3; do $$python -c '' 2>/dev/null && echo $$python && break; done)
BIN := .venv/bin
# Containers like to forbid Python its bytecode, and dozens of short-lived processes compile all of it again and again.
export PYTHONDONTWRITEBYTECODE :=
FAST := -m "not slow and not stack and not gpu" --hypothesis-profile=quick
BENCHMARKS := $(wildcard $(addsuffix .py,$(addprefix benchmarks/,turnaround sweep stop reports followers recovery suggest growth search small_spaces brackets priors warm_starts start_up confirm constraints_and_objectives many_objectives many_values crashes conditions local_optima noise worker_start)))
# Not among them: gpu, because it needs a GPU, and equal_time, which takes hours.

.PHONY: demo up test check check-style check-imports check-types check-tests chaos chaos-long bench test-stack test-gpu sbom
.DEFAULT_GOAL := demo

## make demo: watch a search run. KEEP=1 leaves the stack running; PORT=, MLFLOW_PORT=, DATA_DIR= choose where.
demo: .venv/.installed
	@$(BIN)/paceline demo $(if $(filter-out 0,$(KEEP)),--keep) $(if $(DATA_DIR),--data-dir "$$DATA_DIR") $(if $(PORT),--port $(PORT)) $(if $(MLFLOW_PORT),--mlflow-port $(MLFLOW_PORT))

## make up: the same stack, until Ctrl-C.
up: .venv/.installed
	@exec $(BIN)/paceline up $(if $(DATA_DIR),--data-dir "$$DATA_DIR") $(if $(PORT),--port $(PORT)) $(if $(MLFLOW_PORT),--mlflow-port $(MLFLOW_PORT))

## make test: everything that needs no container engine and no GPU, three files at a time, since many wait for timers; the longest ones do not come last.
test: .venv/.frameworks .venv/client-generator/.installed
	$(BIN)/pytest -m "not stack and not gpu" -n 3 --dist loadfile --no-loadscope-reorder $(ARGS)

## make check: style, types, import contracts and the fast tests; before every commit. It leaves to `make test` whatever
## starts Ray, MLflow or PostgreSQL (so the API's tests on that database), what takes seconds, and most of Hypothesis's examples.
## The checks run side by side: mypy uses one core only, and many tests wait for timers. Each check says how it ended.
check: .venv/.installed
	@$(MAKE) --no-print-directory --jobs --keep-going check-style check-imports check-types check-tests

check-style: .venv/.installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

check-imports: .venv/.installed
	$(BIN)/lint-imports

check-types: .venv/.installed
	$(BIN)/mypy

check-tests: .venv/.installed
	$(BIN)/pytest $(FAST) -n 2 --dist worksteal $(ARGS)

## make chaos: kill every part again and again while experiments run, then audit. SEED=, SECONDS=, DATABASE= choose.
chaos: .venv/.installed
	@$(BIN)/python -W ignore -m tests.chaos $(if $(SEED),--seed $(SEED)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(DATABASE),--database $(DATABASE)) $(ARGS)

## make chaos-long: the same, with one seed after the other until there have been FAULTS=1000 faults, for a night. Ctrl-C ends it with its table.
chaos-long: .venv/.installed
	@$(BIN)/python -W ignore -m tests.chaos --faults $(or $(FAULTS),1000) $(if $(SEED),--seed $(SEED)) $(if $(SECONDS),--seconds $(SECONDS)) $(if $(DATABASE),--database $(DATABASE)) $(ARGS)

## make bench: Paceline and what one would have instead, in turn. ONLY=turnaround, ONLY="sweep stop" choose, ARGS go to each.
bench: .venv/.peers
	@set -e; for name in $(or $(ONLY),$(notdir $(basename $(BENCHMARKS)))); do \
	  echo; echo "== $$name"; $(BIN)/python -W ignore -m benchmarks.$$name $(ARGS); done

## make test-stack: the tests that need a container engine.
test-stack: .venv/.installed
	$(BIN)/pytest -m stack $(ARGS)

## make test-gpu: the tests that need an NVIDIA GPU, in an environment whose torch finds it.
test-gpu: .venv/.installed
	$(BIN)/pytest -m gpu $(ARGS)

## make sbom: the Python packages of an image as a CycloneDX document. IMAGE= chooses the image.
IMAGE ?= paceline:latest
SBOM := $(subst /,-,$(subst :,-,$(IMAGE))).cdx.json
sbom:
	docker run --rm $(IMAGE) sh -c 'python -m venv /tmp/tool && /tmp/tool/bin/pip install --quiet cyclonedx-bom==7.5.0 >&2 \
	  && /tmp/tool/bin/cyclonedx-py environment --output-format JSON /opt/venv/bin/python' > $(SBOM)
	@echo "Written: $(SBOM)"

.venv/.frameworks: .venv/.installed
	@echo "Installing the libraries of all trainer kinds into .venv …"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[frameworks]'
	@touch $@

.venv/.peers: .venv/.installed
	@echo "Installing what the peers need into .venv …"
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[bench]'
	@touch $@

# Its dependencies conflict with the project's, so it has an environment of its own.
.venv/client-generator/.installed: .venv/.installed
	@echo "Installing the generator of API clients into .venv/client-generator …"
	@$(PYTHON) -m venv .venv/client-generator
	@.venv/client-generator/bin/python -m pip install --quiet openapi-python-client==0.29.1
	@touch $@

.venv/.installed: pyproject.toml constraints.txt
	@echo "Installing into .venv; the first time takes a few minutes …"
	@$(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@
