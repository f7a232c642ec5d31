# Every target makes .venv itself when it is missing or older than the lock.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help repro studies experiments test test-long test-lowest images lint docs dist sbom audit schemas bench gpu gpu-packages zoo controls setup lock clean

PYTHON ?= python3
BIN := .venv/bin
# The stages call `python`: the environment's own must come first.
export PATH := $(CURDIR)/$(BIN):$(PATH)
UV := $(shell command -v uv 2>/dev/null || echo .venv-tools/bin/uv)

help: ## show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

repro: setup ## run the whole default pipeline: every configuration, parity, timing, report
	trainparity repro

SCALE ?=
studies: setup ## run the five articles' studies and print their claims; SCALE=smoke, laptop or article
	trainparity studies $(if $(SCALE),--scale $(SCALE))

experiments: setup ## show the experiments that were run, side by side
	dvc exp show --only-changed --hide-workspace --no-pager --drop '.*/.*|.*yaml'

# One worker more than the two cores that this is made for: many tests wait for the processes that they started.
test: setup ## run the tests, but for those that take long
	pytest --numprocesses=3 --dist=loadfile --no-loadscope-reorder -m "not slow and not study"

test-long: setup ## run the tests that take long: whole runs again and again, the studies, sweeps over loops and seeds
	pytest --numprocesses=2 --dist=loadfile -m "slow or study"

LOWEST := .venv-lowest
test-lowest: | $(UV) ## run the core's tests with the lowest versions that pyproject.toml allows
	$(UV) venv --quiet --allow-existing --python $(PYTHON) $(LOWEST)
	$(UV) pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct --editable '.[data,report]' \
	  'pytest>=8.3' 'pytest-timeout>=2.3' 'hypothesis>=6.120' 'jsonschema>=4.23' 'threadpoolctl>=3.1' 'psutil>=6.0'
	$(LOWEST)/bin/python -m pytest tests/parity/test_compare.py tests/parity/test_curves.py tests/records tests/report \
	  tests/run tests/check tests/test_api.py tests/test_cli.py tests/test_params.py tests/test_environment.py

docs: setup ## build the documents as a site, in .site; every link is checked
	python docs/computed.py
	python -m tests.support.summary_document
	NO_MKDOCS_2_WARNING=1 mkdocs build --quiet --strict

dist: setup ## build wheel and source distribution into dist, and check them
	rm -rf dist
	python -m hatchling build
	$(UV) tool run --quiet twine check --strict dist/*

sbom: dist ## list what wheel and source distribution hold and need, as CycloneDX, in sbom
	rm -rf sbom
	$(UV) tool run --quiet --from 'cyclonedx-python-lib[json-validation]==11.12.0' --with packaging==26.3 python .ci/sbom.py

audit: | $(UV) ## look up every package of the lock among the known vulnerabilities; needs the network
	$(UV) tool run --quiet --from pip-audit==2.10.1 pip-audit --strict --disable-pip --require-hashes \
	  --progress-spinner off --requirement requirements.lock

images: ## build the CPU and CUDA images; what is unchanged comes from the builder's cache
	docker/build cpu
	docker/build cuda

lint: setup ## format check, lint, types; Dockerfiles and shell scripts
	ruff format --check .
	ruff check .
	mypy src
	hadolint docker/Dockerfile tests/docker/registry/Dockerfile tests/docker/s3/Dockerfile \
	  tests/docker/slurm/Dockerfile
	shellcheck docker/build docker/entrypoint docker/finish docker/labels docker/run docker/environment/install \
	  docker/environment/stand-in deploy/slurm.sh .ci/run \
	  tests/docker/s3/start tests/docker/slurm/node

bench: setup ## measure everything that has a target; figures and a page of them go to benchmarks/results
	python benchmarks/step_time.py
	python benchmarks/loop_overhead.py
	python benchmarks/speedup_intervals.py
	python benchmarks/recorder.py --rounds 3 --steps 50 --no-large
	python benchmarks/loading.py
	python benchmarks/compile_cost.py
	python benchmarks/ddp.py
	python benchmarks/tanhexp.py
	python benchmarks/precision.py
	python benchmarks/growth.py
	python benchmarks/startup.py
	python benchmarks/whole_pipeline.py
	python benchmarks/page.py

gpu: ## on a machine with a GPU: its tests, pipeline, studies and profiles in pieces, without network
	$(PYTHON) benchmarks/gpu.py

# What torch brings along, and torch, a GPU machine has; the rest is pure Python or for this platform.
gpu-packages: | $(UV) ## pack what a GPU machine with Python 3.12, torch and no network lacks, for `make gpu`
	rm -rf .gpu/packing && mkdir -p .gpu/packing
	for name in torch torchvision numpy scikit-learn pillow; do echo "$$name; python_version < '3'"; done >.gpu/there.txt
	$(UV) pip compile --quiet --no-header --no-emit-index-url --override .gpu/there.txt --extra pipeline --extra report --extra data \
	  --python-version 3.12 --python-platform x86_64-manylinux_2_28 pyproject.toml --output-file .gpu/packages.txt
	$(UV) pip install --quiet --no-deps --target .gpu/packing --python-version 3.12 \
	  --python-platform x86_64-manylinux_2_28 --requirement .gpu/packages.txt
	tar -czf .gpu/packages.tar.gz -C .gpu/packing . && rm -rf .gpu/packing && du -h .gpu/packages.tar.gz

ZOO ?= ../shared/zoo
zoo: setup ## judge public scripts, if their folder ZOO is there, and our loops in their shape; the table goes to benchmarks/results
	python benchmarks/zoo.py $(ZOO)

controls: setup ## try the checker on right and wrong loops; counts go to benchmarks/results
	trainparity controls

schemas: setup ## write the JSON Schemas of params.yaml and claims.yaml again
	python -m trainparity.schemas

lock: setup ## resolve requirements.lock anew from pyproject.toml, and which part of it the images hold
	$(UV) pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --upgrade \
	  --extra dev --python-version 3.11 pyproject.toml --output-file requirements.lock
	$(UV) pip compile --quiet --universal --generate-hashes --no-header --no-emit-index-url --upgrade \
	  --extra pipeline --extra report --extra data --constraints requirements.lock --python-version 3.11 pyproject.toml \
	  --output-file docker/environment/requirements.lock

clean: ## remove the environment and everything the pipeline made
	rm -rf .venv .venv-tools .venv-lowest .site dist sbom .trainparity data runs reports metrics.json
	rm -rf studies/*/.trainparity studies/*/data studies/*/runs studies/*/reports

setup: .venv/complete

# The mark is written last, so an interrupted set-up is repeated by the next call.
.venv/complete: requirements.lock pyproject.toml | $(UV)
	rm -f $@
	$(UV) venv --quiet --allow-existing --python $(PYTHON) .venv
	$(UV) pip sync --quiet --compile-bytecode --python $(BIN)/python --require-hashes requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --editable .
	touch $@

.venv-tools/bin/uv:
	$(PYTHON) -m venv .venv-tools
	.venv-tools/bin/pip install --quiet --disable-pip-version-check uv
