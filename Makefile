# `make demo` trains a network and writes a report; `make test` runs all checks; `make docs` builds the site.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin

# The tests that `make sanitize` and `make aarch64` run.
SANITIZED ?= tests/ops/test_native.py tests/ops/test_extreme_calls.py tests/ops/test_operators.py tests/ops/dynamic/test_cpu.py tests/ops/attention_pass tests/ops/em/test_cpu.py \
  tests/ops/kmeans/test_cpu.py tests/ops/attention/test_cpu.py tests/ops/self_attention/test_cpu.py \
  tests/ops/self_routing/test_cpu.py tests/ops/test_gaussian.py tests/ops/kuramoto/test_cpu.py
# The kernels, beside the sources; the cmake that builds them is the system's, or that of the environment.
KERNELS := src/torchcaps/_kernels.so
CMAKE := $(or $(shell command -v cmake),$(BIN)/cmake)
CMAKE_FIRST := $(if $(shell command -v cmake),,$(VENV)/packages)
# Widest vectors of the library that `make sanitize` builds, a folder for each.
WIDEST ?= avx512
SANITIZE := build/sanitize-$(WIDEST)
# The C++ sources, as clang-format checks them.
CSRC := $(wildcard csrc/*.cpp csrc/*/*)
FORMATTED := $(CSRC) scripts/replay/replay.cpp

.PHONY: prepare demo test slow lint js golden sanitize tsan aarch64 chaos fuzz attack docs notebooks dist lock clean chromium

demo: $(VENV)/ready
	$(BIN)/torchcaps train digits

# What the checks need; with -j2, packages are unpacked while the kernels compile.
prepare: $(VENV)/ready $(SANITIZE)/torchcaps/_kernels.so chromium

# Each worker takes half of the tests in their order, so that a module's fixtures are made once, and then some of the other's.
HALVES := -n 2 --dist worksteal

# One thread per worker: with two threads each, two workers would compete for the cores.
test: $(VENV)/ready chromium
	$(MAKE) --jobs=2 lint
	OMP_NUM_THREADS=1 $(BIN)/pytest $(HALVES)

# What takes minutes: an hour or two.
slow: $(VENV)/ready chromium
	OMP_NUM_THREADS=1 $(BIN)/pytest $(HALVES) -m slow

lint: $(VENV)/ready js
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run --Werror $(FORMATTED)
	$(BIN)/pyright --pythonpath $(BIN)/python --threads 2
	$(BIN)/pydoclint --quiet src

# Format, lint and types of the playground's JavaScript; skipped with a message where Node.js or the npm registry is missing.
js: $(VENV)/ready
	$(BIN)/python scripts/check_js.py

# Hashes of every kernel, layer and of a short training of every model, against those stored in tests/golden.
golden: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/pytest tests/golden -m 'slow or not slow'

# The kernel tests with AddressSanitizer and UndefinedBehaviorSanitizer, on a library of its own. The
# sanitizer is loaded before Python, together with the C++ library, whose exceptions it intercepts. Python frees nothing
# at exit, so leaks are not reported. Errors are written to report.* in its folder, since pytest captures the output.
# WIDEST=portable builds the portable kernels alone, in a fifth of the time.
sanitize: $(VENV)/ready $(SANITIZE)/torchcaps/_kernels.so
	rm -f $(SANITIZE)/report.*
	TORCHCAPS_LIBRARY=$(CURDIR)/$(SANITIZE)/torchcaps \
	  LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so)" \
	  ASAN_OPTIONS=detect_leaks=0:log_path=$(CURDIR)/$(SANITIZE)/report UBSAN_OPTIONS=print_stacktrace=1 \
	  OMP_NUM_THREADS=1 $(BIN)/pytest $(HALVES) -p no:cacheprovider $(SANITIZED) || { cat $(SANITIZE)/report.* 2>/dev/null; exit 1; }
	@! grep -s "ERROR: \|runtime error" $(SANITIZE)/report.*

# Every kernel call of a layer of every router, made by three callers at once with four threads each, with
# ThreadSanitizer: a data race or another bit than with one thread fails.
tsan: $(VENV)/ready
	cmake -S . -B build/tsan -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTORCHCAPS_SANITIZE=thread \
	  -DTORCHCAPS_OUTPUT=$(CURDIR)/build/tsan/torchcaps
	cmake --build build/tsan --parallel 2
	$(CXX) -O1 -g -fsanitize=thread -std=c++17 -pthread -o build/tsan/replay scripts/replay/replay.cpp -ldl
	OMP_NUM_THREADS=1 $(BIN)/python scripts/replay/record_layers.py build/tsan/calls.bin
	build/tsan/replay build/tsan/torchcaps/_kernels.so build/tsan/calls.bin

# The kernels for 64-bit ARM, built by a cross compiler and run under qemu: the calls of the kernel tests are recorded on
# this machine with the portable kernels, replayed there, and compared. Their vectors of 16 bytes must have become NEON.
# On Debian: apt-get install g++-aarch64-linux-gnu qemu-user.
ARM := aarch64-linux-gnu
aarch64: $(VENV)/ready
	cmake -S . -B build/aarch64 -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
	  -DCMAKE_CXX_COMPILER=$(ARM)-g++ -DTORCHCAPS_OUTPUT=$(CURDIR)/build/aarch64/torchcaps
	cmake --build build/aarch64
	$(ARM)-g++ -O2 -std=c++17 -pthread -o build/aarch64/replay scripts/replay/replay.cpp -ldl
	PYTHONPATH=scripts/replay TORCHCAPS_CALLS=build/aarch64/calls.bin TORCHCAPS_CPU=portable OMP_NUM_THREADS=1 \
	  $(BIN)/pytest -p record_calls -p no:cacheprovider $(SANITIZED)
	qemu-aarch64 -L /usr/$(ARM) build/aarch64/replay build/aarch64/torchcaps/_kernels.so build/aarch64/calls.bin
	$(ARM)-objdump -d build/aarch64/torchcaps/_kernels.so | awk '/\tfmla\t/ { vectors++ } /\tfmadd\t/ { singles++ } \
	  END { print vectors " multiply-adds of vectors (NEON), " singles " of single values"; exit vectors < 10 * singles }'

# Break trainings in every way a machine can and compare what they end with: ten minutes.
chaos: $(VENV)/ready
	$(BIN)/python scripts/chaos

# Damaged input for every reader: ten minutes, or FUZZ='--seconds 3600 --seed 7'. Findings are written to the tests.
fuzz: $(VENV)/ready
	$(BIN)/python scripts/fuzz $(FUZZ)

# Slow, oversized and many requests to a playground on this machine, beside ordinary ones.
attack: $(VENV)/ready
	$(BIN)/python scripts/attack_playground.py $(ATTACK)

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

# The tutorials as notebooks, with their results.
notebooks: $(VENV)/ready
	OMP_NUM_THREADS=1 $(BIN)/python scripts/run_tutorials.py

# The packages of constraints.txt, each held to its hash; scripts/lock_requirements.py writes them. The hashes are those of
# Linux on x86-64 with Python 3.11. Elsewhere, LOCKED="-c FILE '.[dev,docs,play]'" with a file of versions only.
LOCKED ?= --require-hashes --no-deps --requirement constraints.txt

# The environment is rebuilt when one of its inputs changes. Bytecode is written by two processes, where pip uses one, and
# without the tests of other packages.
$(VENV)/packages: constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --no-compile $(LOCKED)
	-$(BIN)/python -W ignore -m compileall -q -q -j 2 -x '/tests?/' $(VENV)/lib
	touch $@

# Without a compiler, or where the kernels do not build, the package works without them and says so.
$(VENV)/ready: $(VENV)/packages $(KERNELS) pyproject.toml
	$(BIN)/pip install --quiet --no-deps --no-build-isolation --config-settings wheel.cmake=false --editable .
	touch $@

$(KERNELS): CMakeLists.txt $(CSRC) | $(CMAKE_FIRST)
	-$(CMAKE) -S . -B build/kernels && $(CMAKE) --build build/kernels --parallel 2

$(SANITIZE)/torchcaps/_kernels.so: CMakeLists.txt $(CSRC) | $(CMAKE_FIRST)
	$(CMAKE) -S . -B $(SANITIZE) -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTORCHCAPS_SANITIZE=address,undefined \
	  -DTORCHCAPS_WIDEST=$(WIDEST) -DTORCHCAPS_OUTPUT=$(CURDIR)/$(SANITIZE)/torchcaps
	$(CMAKE) --build $(SANITIZE) --parallel 2

# Sdist, wheel and bill of materials in dist/, built twice: the same sources give the same bytes.
dist: $(VENV)/ready
	rm -rf dist build/dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python -m build --no-isolation --outdir build/dist
	cd dist && sha256sum *.whl *.tar.gz | tee ../build/dist/sums && cd ../build/dist && sha256sum --check --quiet sums
	$(BIN)/twine check --strict dist/*
	$(BIN)/python scripts/make_sbom.py dist/sbom.cdx.json

# The versions and hashes of constraints.txt.
lock: $(VENV)/ready
	$(BIN)/python scripts/lock_requirements.py

clean:
	rm -rf $(VENV) build dist $(KERNELS)
