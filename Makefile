# Every target sets itself up: the first run creates .venv, later ones reuse it.
PYTHON ?= python3
BIN := .venv/bin
PIP = $(BIN)/python -m pip install --quiet --disable-pip-version-check

.PHONY: help setup demo test test-slow torture browser docs docs-serve release-check check reproduce bench bench-scale clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: .venv/ready  ## create .venv with all extras, at the versions and digests of requirements.lock

.venv/ready: pyproject.toml constraints.txt requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "PathE needs Python 3.10 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make setup PYTHON=python3.12"; exit 2; }
	@test -x $(BIN)/python || { echo "creating .venv ..."; $(PYTHON) -m venv .venv; }
	@echo "installing pathe and its pinned dependencies into .venv (a few minutes the first time) ..."
	@$(PIP) --require-hashes --no-deps --requirement requirements.lock
	@$(PIP) --constraint constraints.txt torch
	@$(PIP) --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m pip check
	@touch $@

demo: setup  ## answer, explain, fine-tune and compare on a small graph, without a download
	@rm -rf runs/demo runs/demo-data
	@echo "Some facts are hidden: can the pre-trained model find them?"
	$(BIN)/pathe convert examples/europe.csv runs/demo-data --split 0.8,0.1,0.1
	$(BIN)/pathe predict --data runs/demo-data/train.txt --head Paris --relation "capital of" -k 3 --explain
	$(BIN)/pathe predict --data runs/demo-data/train.txt --head Strasbourg --tail Rhine -k 1
	$(BIN)/pathe missing --data runs/demo-data/train.txt -k 5
	@echo "How many of the hidden facts does it find? As it is, and after fine-tuning:"
	$(BIN)/pathe evaluate --data runs/demo-data
	$(BIN)/pathe train runs/demo-data --set init=pretrained --out runs/demo
	$(BIN)/pathe predict runs/demo --data runs/demo-data/train.txt --head Paris --relation "capital of" -k 3
	@$(BIN)/python -c 'import json, sys; mrr = json.load(open("runs/demo/result.json"))["mrr"]; \
	print(f"test MRR {mrr:.3f}: " + ("fine" if mrr > 0.7 else "expected above .7")); sys.exit(mrr <= 0.7)'

test: setup  ## run the tests but the slow ones: about five minutes on two cores
	$(BIN)/python -m pytest -m "not slow"

test-slow: setup  ## run the slow tests: training runs, tutorials and README commands
	$(BIN)/python -m pytest -m slow

torture: setup  ## kill, fail and fuzz everything, with large numbers: hours; writes benchmarks/torture.json
	$(BIN)/python benchmarks/torture.py --kills 1000 --inputs 10000

browser: setup  ## run the tests of the page in Debian's Chromium, which is installed if need be (as root)
	@command -v chromium >/dev/null || { echo "installing chromium ..."; apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; }
	PATHE_BROWSER=required $(BIN)/python -m pytest tests/browser

docs: setup  ## build the documentation site in site/; a warning is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

docs-serve: setup  ## show the documentation on http://127.0.0.1:8000 while you write it
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs serve --livereload --watch src --watch website

release-check: setup  ## build wheel and sdist in dist/, check them, and install and use both in clean environments
	rm -rf build dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl
	$(BIN)/python benchmarks/release.py

check: setup  ## run what CI runs: formatting, lint, types, docs, packages, all tests
	$(BIN)/ruff format --check src tests benchmarks examples website
	$(BIN)/ruff check src tests benchmarks examples website
	$(BIN)/mypy
	$(MAKE) docs
	$(MAKE) release-check
	$(MAKE) test
	$(MAKE) test-slow
	$(MAKE) browser

reproduce: setup  ## run an experiment: make reproduce NAME=wn18rr-relation DATA=FOLDER (no NAME: list them)
	$(BIN)/pathe reproduce $(NAME) $(if $(DATA),--data $(DATA))

bench: setup  ## measure against other libraries on this machine; writes benchmarks/*.json
	$(BIN)/python benchmarks/foundation.py
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/speed_gpu.py
	$(BIN)/python benchmarks/stages.py
	$(BIN)/python benchmarks/use.py
	$(BIN)/python benchmarks/any_graph.py
	$(BIN)/python benchmarks/serve.py

bench-scale: setup  ## measure large graphs: up to 100M triples; needs 60 GB of disk; writes benchmarks/*.json
	$(BIN)/python benchmarks/prepare.py
	$(BIN)/python benchmarks/frontier.py --training 50000 500000 5000000
	$(BIN)/python benchmarks/cluster.py

clean:  ## remove .venv and caches
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist site src/*.egg-info
