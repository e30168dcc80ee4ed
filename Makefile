# `make` = lint + types + tests. PY is the interpreter of the virtual environment that README makes.
PY ?= .venv/bin/python

.PHONY: all lint types test bench calibrate tiny-model

all: lint types test

lint:
	$(PY) -m ruff check rlforge_cli tests
	$(PY) -m ruff format --check rlforge_cli tests
	$(PY) -c "from importlinter.cli import lint_imports_command; lint_imports_command()"

types:
	$(PY) -m mypy

test:
	$(PY) -m pytest

# rlforge against TRL on this CPU; PEER is an interpreter with the extra `bench`
PEER ?= $(PY)
bench:
	$(PY) tests/benchmarks/step_time.py --peer-python $(PEER)

# false-alarm rates of smoke and doctor; long
calibrate:
	$(PY) tests/calibration/false_alarms.py

# the embedded model, from scratch
tiny-model:
	$(PY) -m rlforge_cli.tasks.tiny_model rlforge_cli/assets/tiny-arith
