# make demo   set up, show the main job, reproduce the paper      make lint   ruff, mypy
# make test   set up and run the tests            make sanitize  a stress test of the core under the sanitizers
# make bench  speed against others (BENCH=--quick: two minutes)   make clean  forget what was built
# make fuzz SECONDS=60 SEED=0  random nasty vectors against exact arithmetic (CASE=... repeats a finding)
# make test-all  the slow tests as well           make bench-torch  the same for tensors
# make test-gpu  the CUDA kernels, on a GPU       make bench-cuda  the same on a GPU
# make example   train sparse networks (PyTorch, JAX; two minutes)   make bench-decomposition  for factorizations
# make cross     the core for every system we promise something for, run where it can (docs/platforms.md)
# make test-oldest  with the oldest versions that pyproject.toml claims
# make bench-sets  for the simplex, balls and masks   make bench-dask  for Dask arrays
# make docs  the site, in build/docs                 make docs-pictures  its drawings
# make test-docs  the site in a browser (needs Chromium)
# make pictures  parts of faces, digits, natural images, topics of news, attention (a minute)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt constraints.txt $(shell find native src -name '*.?pp' -o -name '*.py')

# The pinned versions hold for the build's own environment as well.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo docs docs-pictures example pictures test test-all test-docs test-gpu fuzz lint bench bench-sets bench-torch bench-dask bench-cuda bench-decomposition sanitize cross test-oldest clean

demo: $(VENV)/installed
	$(BIN)/python examples/demo.py
	$(BIN)/hoyer reproduce --quick --out out/reproduce

example: $(VENV)/examples-installed
	$(BIN)/python examples/sparse_mlp.py
	$(BIN)/python examples/jax_network.py

pictures: $(VENV)/examples-installed
	for name in faces digits natural_patches topics attention; do $(BIN)/python examples/$$name.py || exit 1; done

# The drawings of the site, which are committed; after `make example pictures` also those of the slow examples.
docs-pictures: $(VENV)/examples-installed
	for name in why simplex threshold psi searches engines fsdp; do $(BIN)/python docs/pictures/$$name.py || exit 1; done
	for name in faces natural_patches sparse_mlp jax_network; do if [ -e out/$$name.png ]; then cp out/$$name.png docs/pictures/; fi; done

# Pages whose examples are run.
DOCTESTED := README.md docs/index.md docs/paper/index.md docs/guides docs/explanation docs/internals

# The core for the explorer: see native/binding/wasm.cpp.
WASM := build/docs-static/explorer/hoyer.wasm
WASM_SOURCES := native/binding/wasm.cpp native/run/alone.cpp native/run/machine.cpp
WASM_FLAGS := -target wasm32-wasi -mexec-model=reactor -msimd128 -Inative -std=c++20 -O3 -ffp-contract=off -fno-math-errno \
  -fno-trapping-math -fno-exceptions -DHOYER_ISA=baseline -Wall -Wextra -s

$(WASM): $(WASM_SOURCES) $(wildcard native/*.hpp native/*/*.hpp) | $(VENV)/docs-installed
	mkdir -p $(@D)
	$(BIN)/python -m ziglang c++ $(WASM_FLAGS) $(WASM_SOURCES) -o $@

PLOTS := build/docs-static/plots/results.json

$(PLOTS): benchmarks/plots.py $(wildcard benchmarks/results/*.json) | $(VENV)/docs-installed
	$(BIN)/python -m benchmarks.plots $@

# Offline. A warning is an error, and so are a link that leads nowhere, an example that prints something else, and a
# notebook that fails. One thread for BLAS: its threads wait for each other where a core is busy.
docs: export OMP_NUM_THREADS := 1
docs: $(VENV)/docs-installed $(WASM) $(PLOTS)
	PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/sphinx-build -W --keep-going -j 2 -d build/docs-doctrees docs build/docs
	$(BIN)/python -m pytest -q tests/test_documents.py tests/test_public_names.py $(DOCTESTED) --doctest-glob='*.md'

# The explorer's numbers are those of the core whose registers are as wide as WebAssembly's.
test-docs: docs $(VENV)/test-docs-installed
	HOYER_ISA=baseline HOYER_SITE=build/docs $(BIN)/python -m pytest -n 2 tests/docs

# What the kernels are asked under Triton's interpreter, which is slow; a GPU is asked GPU_TESTS.
INTERPRETED := $(wildcard tests/test_torch_cuda*.py) \
  $(patsubst %,tests/test_%.py,collection degenerate gradient_extremes sets masks)

# The CUDA kernels apart: the variable must not reach what torch.compile does with Triton.
test: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 -m "not slow and not gpu" tests $(DOCTESTED) --doctest-glob='*.md'
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -n 2 -m "gpu and not slow" $(INTERPRETED)
	$(BIN)/python -m pytest -q --doctest-modules --pyargs hoyer

test-all: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 -m "not gpu" tests $(DOCTESTED) --doctest-glob='*.md'
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -n 2 -m gpu $(GPU_TESTS)
	$(BIN)/python -m pytest -q --doctest-modules --pyargs hoyer

# Where most of our requirements come from, without PyTorch and JAX, whose oldest versions are a matter of their own
# (docs/platforms.md).
OLDEST := build/oldest
test-oldest:
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/python -m pip install --quiet uv
	env -u PIP_CONSTRAINT $(OLDEST)/bin/uv pip install --quiet --python $(OLDEST)/bin/python --resolution lowest-direct ".[test-arrays]"
	$(OLDEST)/bin/python -m pytest -n 2 -m "not slow and not gpu" -o filterwarnings=default tests

fuzz: $(VENV)/installed
	PYTHONPATH=tests $(BIN)/python -m fuzz --seconds $(or $(SECONDS),60) --seed $(or $(SEED),0) $(if $(CASE),--case $(CASE))

# mypy needs to see everything that examples and benchmarks import.
lint: $(VENV)/examples-installed $(VENV)/bench-installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/clang-format --dry-run -Werror native/*.?pp native/*/*.?pp tests/native/*.cpp
	$(BIN)/mypy -p hoyer
	$(BIN)/mypy examples/*.py
	$(BIN)/mypy benchmarks/*.py

bench: $(VENV)/bench-installed
	$(BIN)/python -m benchmarks $(BENCH)

bench-sets: $(VENV)/bench-installed
	$(BIN)/python -m benchmarks.sets $(BENCH)

bench-dask: $(VENV)/bench-installed
	$(BIN)/python -m benchmarks.dask_arrays $(BENCH)

bench-torch: $(VENV)/bench-installed
	$(BIN)/python -m benchmarks.torch_cpu $(BENCH)
	$(BIN)/python -m benchmarks.torch_calls --device cpu

# Both with whatever Python is there: no core is needed, nor by these files.
GPU_TESTS := $(wildcard tests/test_torch_cuda*.py) tests/test_cupy.py \
  $(patsubst %,tests/test_%.py,collection degenerate properties equivalences gradient gradient_extremes sets masks)

test-gpu:
	PYTHONPATH=src $(PYTHON) -m pytest -m gpu $(GPU_TESTS)

bench-cuda:
	PYTHONPATH=src $(PYTHON) -m benchmarks.torch_cuda
	PYTHONPATH=src $(PYTHON) -m benchmarks.torch_calls --device cuda

bench-decomposition: $(VENV)/bench-installed
	$(BIN)/python -m benchmarks.decomposition $(BENCH)

cross: $(VENV)/cross-installed
	$(BIN)/python tests/native/cross.py $(TARGETS)

$(patsubst %,$(VENV)/%-installed,bench cross docs examples test-docs): $(VENV)/installed
	$(BIN)/python -m pip install --quiet ".[$(patsubst %-installed,%,$(@F))]"
	touch $@

# The core without Python: once for memory and undefined behaviour, once for data races.
SANITIZERS := address,undefined thread
RUNTIME := native/run/groups.cpp native/run/machine.cpp native/run/openmp.cpp native/run/pool.cpp
STRESS_FLAGS := -Inative -std=c++20 -O1 -g -ffp-contract=off -fno-math-errno -fno-trapping-math -fno-sanitize-recover=all

sanitize: $(SANITIZERS:%=build/stress-%)
	for program in $^; do echo $$program; ./$$program || exit 1; done

build/stress-%: tests/native/stress.cpp native/run/kernels.cpp $(RUNTIME) $(wildcard native/*.hpp native/*/*.hpp)
	mkdir -p build
	$(CXX) $(STRESS_FLAGS) -fsanitize=$* -DHOYER_ISA=baseline -c native/run/kernels.cpp -o $@-baseline.o
	if [ "$$(uname -m)" = x86_64 ]; then \
	  $(CXX) $(STRESS_FLAGS) -fsanitize=$* -march=x86-64-v3 -DHOYER_ISA=avx2 -c native/run/kernels.cpp -o $@-avx2.o && \
	  $(CXX) $(STRESS_FLAGS) -fsanitize=$* -march=x86-64-v4 -DHOYER_ISA=avx512 -c native/run/kernels.cpp -o $@-avx512.o && \
	  $(CXX) $(STRESS_FLAGS) -fsanitize=$* -DHOYER_X86 tests/native/stress.cpp $(RUNTIME) $@-*.o -o $@ -lpthread -ldl; \
	else \
	  $(CXX) $(STRESS_FLAGS) -fsanitize=$* tests/native/stress.cpp $(RUNTIME) $@-baseline.o -o $@ -lpthread -ldl; \
	fi

$(VENV)/installed: $(SOURCES)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) build dist out
