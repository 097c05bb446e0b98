# Every target sets itself up: the first run creates .venv, later ones reuse it.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: help setup demo test test-slow browser check reproduce bench bench-scale clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: .venv/ready  ## create .venv with all extras, at the versions of constraints.txt

.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { echo "PathE needs Python 3.10 or newer; $(PYTHON) is $$($(PYTHON) --version). Try: make setup PYTHON=python3.12"; exit 2; }
	@test -x $(BIN)/python || { echo "creating .venv ..."; $(PYTHON) -m venv .venv; }
	@echo "installing pathe and its pinned dependencies into .venv (a few minutes the first time) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[all,dev,bench]'
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

browser: setup  ## run the tests of the page in Debian's Chromium, which is installed if need be (as root)
	@command -v chromium >/dev/null || { echo "installing chromium ..."; apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium >/dev/null; }
	PATHE_BROWSER=required $(BIN)/python -m pytest tests/browser

check: setup  ## run what CI runs: formatting, lint, types, all tests
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/mypy
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
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist src/*.egg-info
