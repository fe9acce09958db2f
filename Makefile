# Two commands matter: `make demo` shows what torchcaps does, `make test` says whether the tree is green.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: demo test docs clean chromium

demo: $(VENV)/ready
	$(BIN)/torchcaps train digits

# One thread for each of the two workers: with two of each they would wait for one another.
test: $(VENV)/ready chromium
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright --pythonpath $(BIN)/python
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

# The browser that the tests of the playground look through: Debian's, where it is missing and may be installed. Without
# it they are skipped, so that nothing here makes the tests fail.
chromium:
	@if ! command -v chromium >/dev/null && command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  echo "installing chromium for the tests of the playground"; \
	  { DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends chromium \
	    || { timeout 120 apt-get update -qq && DEBIAN_FRONTEND=noninteractive timeout 300 apt-get install -y -qq --no-install-recommends chromium; }; \
	  } >/dev/null 2>&1 || echo "no chromium: these tests are skipped"; \
	fi; true

docs: $(VENV)/ready
	$(BIN)/sphinx-build -W -q docs docs/_build
	@echo "docs/_build/index.html"

# The environment is made anew whenever what it is made of changes.
$(VENV)/ready: pyproject.toml constraints.txt CMakeLists.txt $(wildcard csrc/*)
	$(PYTHON) -m venv $(VENV)
	PIP_CONSTRAINT=constraints.txt $(BIN)/pip install --quiet --editable '.[dev,docs,play]'
	touch $@

clean:
	rm -rf $(VENV) build dist
