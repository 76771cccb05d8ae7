# make demo   set up, show the main job, reproduce the paper      make lint   ruff, mypy
# make test   set up and run the tests            make sanitize  a stress test of the core under the sanitizers
# make bench  speed against others (BENCH=--quick: two minutes)   make clean  forget what was built
# make fuzz SECONDS=60 SEED=0  random nasty vectors against exact arithmetic (CASE=... repeats a finding)
# make test-all  the slow tests as well           make bench-torch  the same for tensors
# make test-gpu  the CUDA kernels, on a GPU       make bench-cuda  the same on a GPU
# make example   train sparse networks (PyTorch, JAX; two minutes)   make bench-decomposition  for factorizations
# make bench-sets  for the simplex, balls and masks   make bench-dask  for Dask arrays
# make pictures  parts of faces, digits, natural images, topics of news, attention (a minute)
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
SOURCES := pyproject.toml CMakeLists.txt constraints.txt $(shell find native src -name '*.?pp' -o -name '*.py')

# The pinned versions hold for the build's own environment as well.
export PIP_CONSTRAINT := constraints.txt
export PIP_BUILD_CONSTRAINT := constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo example pictures test test-all test-gpu fuzz lint bench bench-sets bench-torch bench-dask bench-cuda bench-decomposition sanitize clean

demo: $(VENV)/installed
	$(BIN)/python examples/demo.py
	$(BIN)/hoyer reproduce --quick --out out/reproduce

example: $(VENV)/examples-installed
	$(BIN)/python examples/sparse_mlp.py
	$(BIN)/python examples/jax_network.py

pictures: $(VENV)/examples-installed
	for name in faces digits natural_patches topics attention; do $(BIN)/python examples/$$name.py || exit 1; done

# What the kernels are asked under Triton's interpreter, which is slow; a GPU is asked GPU_TESTS.
INTERPRETED := $(wildcard tests/test_torch_cuda*.py) \
  $(patsubst %,tests/test_%.py,collection degenerate gradient_extremes sets masks)

# The CUDA kernels apart: the variable must not reach what torch.compile does with Triton.
test: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 -m "not slow and not gpu" tests README.md docs/sets.md docs/distributed.md --doctest-glob='*.md'
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -n 2 -m "gpu and not slow" $(INTERPRETED)
	$(BIN)/python -m pytest -q --doctest-modules --pyargs hoyer

test-all: $(VENV)/installed
	$(BIN)/python -m pytest -n 2 -m "not gpu" tests README.md docs/sets.md docs/distributed.md --doctest-glob='*.md'
	TRITON_INTERPRET=1 $(BIN)/python -m pytest -n 2 -m gpu $(GPU_TESTS)
	$(BIN)/python -m pytest -q --doctest-modules --pyargs hoyer

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

$(VENV)/bench-installed $(VENV)/examples-installed: $(VENV)/installed
	$(BIN)/python -m pip install --quiet ".[$(patsubst %-installed,%,$(@F))]"
	touch $@

# The core without Python: once for memory and undefined behaviour, once for data races.
SANITIZERS := address,undefined thread
RUNTIME := native/run/machine.cpp native/run/openmp.cpp native/run/pool.cpp
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
