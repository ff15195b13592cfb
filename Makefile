# Short names for what is done often. `make` alone lists them.
PYTHON ?= python

.PHONY: help install check format test schemas wheel clean

help:
	@grep -E '^[a-z]+:.*##' Makefile | sed 's/:.*##/\t/'

install: ## everything for working on the code, editable
	$(PYTHON) -m pip install -e '.[demo,test,dev]'

check: ## lint, format, types
	ruff check .
	ruff format --check .
	mypy

format: ## mend what the linter can
	ruff check --fix .
	ruff format .

test: ## the tests
	$(PYTHON) -m pytest

schemas: ## write the published JSON Schemas again
	$(PYTHON) -m harness.schemas

wheel: ## build wheel and sdist into dist/
	$(PYTHON) -m build

clean: ## remove what builds and tools leave
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info
