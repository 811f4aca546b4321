# ---- tests: a program a file; where it lies says what it is linked with
test_program = $(patsubst tests/%.c,$(BUILD)/tests/%,$(1))
UNIT_SOURCES := $(call below,tests/unit,c)
UNIT_ALL := $(call test_program,$(filter $(addsuffix test_%,$(sort $(dir $(UNIT_SOURCES)))),$(UNIT_SOURCES)))
UNIT_CLIENT := $(filter $(addprefix $(BUILD)/tests/unit/,client/% test_client_%),$(UNIT_ALL))
NEEDS_TOOLKIT := $(filter $(BUILD)/tests/unit/kernels/cuda/toolkit/%,$(UNIT_ALL))
UNIT := $(filter-out $(UNIT_CLIENT) $(if $(NVCC),,$(NEEDS_TOOLKIT)),$(UNIT_ALL))
CONFORMANCE := $(call test_program,$(wildcard tests/conformance/test_*.c))
END_TO_END := $(call test_program,$(wildcard tests/end_to_end/test_*.c tests/end_to_end/direct/test_*.c))
# engines: with the libraries as a program of their user's has them
DIRECT := $(filter $(BUILD)/tests/end_to_end/direct/%,$(END_TO_END))
HEADER_CPP := $(patsubst tests/%.cc,$(BUILD)/tests/%,$(call below,tests/unit,cc))
TESTS := $(UNIT) $(UNIT_CLIENT) $(HEADER_CPP) $(CONFORMANCE) $(END_TO_END)
TEST_SCRIPTS := $(wildcard tests/*/test_*.sh tests/check_*.sh)
ifneq ($(SANITIZE),)
# about sources, packages and measurements a sanitizer says nothing
TEST_SCRIPTS := $(filter-out tests/check_% %/test_check_modules.sh %/test_packages_missing.sh %/test_ab.sh %/test_snapshot.sh \
  %/test_bench_kernels.sh %/test_cuda_arch.sh,$(TEST_SCRIPTS))
endif
PYTHON_TESTS := $(addprefix tests/python/,test_client.py test_async.py test_experts.py test_direct.py test_models.py test_quantize.py \
  test_comfyui_nodes.py test_tuning.py test_vllm_plan.py test_triton_repository.py)
TEST_LIBS := -lcmocka $(LIBS)

# what the cuda backend decides without a device is tested on every machine: heuristics, and of a family config.c
# and what it is made of;
# family.c is its row of the table, which has the kernel
PURE := $(call object,$(wildcard kernels/cuda/heuristics/*.c kernels/cuda/families/sm90/int2/*.c kernels/cuda/families/sm90/int4/*.c) \
  $(filter %/config.c %/hopper/behind.c %/hopper/block.c %/sweep.c %/code_cache.c,$(call below,kernels/cuda/families,c)) \
  $(addprefix kernels/cuda/,exec/turns/pieces.c exec/staging.c experts/route.c families/listing.c launch/launches.c \
  tensors/config.c tensors/cut.c weight/layout.c))

SUPPORT := $(call object,$(call below,tests/support,c))
$(BUILD)/tests.a: $(SUPPORT) $(if $(NVCC),,$(PURE))
# with the symbols that libgemmclient keeps to itself
$(BUILD)/client.a: $(CLIENT) $(CLIENT_CUDA)
$(BUILD)/tests.a $(BUILD)/client.a:
	$(call say,AR)
	$(Q)rm -f $@
	$(Q)$(AR) rcs $@ $^

# the folder $(BUILD) as a program that lies below it finds it
empty :=
to_build = '$$ORIGIN/$(subst $(empty) ,,$(patsubst %,../,$(subst /, ,$(patsubst $(BUILD)/%,%,$(@D)))))'

$(UNIT) $(CONFORMANCE): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.c.o $(addprefix $(BUILD)/,tests.a daemon.a libgemmkernels.so proto.a)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -Wl,--as-needed -Wl,-rpath,$(to_build) -o $@ $^ $(TEST_LIBS)

$(UNIT_CLIENT) $(filter-out $(DIRECT),$(END_TO_END)): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.c.o $(addprefix $(BUILD)/,tests.a client.a proto.a)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(TEST_LIBS)

DIRECT_LIBRARIES := $(addprefix $(BUILD)/,libgemmclient-direct.so libgemmclient.so)
$(DIRECT): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.c.o $(addprefix $(BUILD)/,tests.a proto.a) $(DIRECT_LIBRARIES) $(BUILD)/direct-layer
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -Wl,-rpath,$(to_build) -o $@ $(filter-out %/direct-layer,$^) $(TEST_LIBS)

# the example, as its user builds it
$(BUILD)/direct-layer: client/direct/examples/layer.c client/gemmclient.h client/gemmclient_direct.h $(DIRECT_LIBRARIES)
	$(call say,LINK)
	$(Q)$(CC) -std=c17 -Wall -Wextra -Werror $(CFLAGS) $(LDFLAGS) -Iclient -Wl,-rpath,'$$ORIGIN' -o $@ $< $(DIRECT_LIBRARIES) -ldl -lm

$(HEADER_CPP): $(BUILD)/tests/%: tests/%.cc $(BUILD)/libgemmclient.a client/gemmclient.h
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CXX) -std=c++17 -Wall -Wextra -Wpedantic -Werror -I. $(LDFLAGS) -o $@ $< $(BUILD)/libgemmclient.a -lcmocka $(CLIENT_LIBS)

DEMO := $(call object,$(wildcard tests/demo/*.c)) $(TOOL)
$(BUILD)/gemm-demo: $(DEMO) $(BUILD)/libgemmclient.a
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(CLIENT_LIBS)

INPROCESS := $(call object,$(wildcard tests/bench/*.c))
$(BUILD)/gemm-inprocess: $(INPROCESS) $(addprefix $(BUILD)/,libgemmkernels.a proto.a)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) $(CUDA_LIBS)

# what a backend chooses and computes, as text, to be compared with that of another build
SNAPSHOT := $(call object,$(wildcard tests/snapshot/*.c)) $(addprefix $(BUILD)/,libgemmkernels.a proto.a)
$(BUILD)/snapshot: $(SNAPSHOT)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) $(CUDA_LIBS)

demo: ## set everything up, load real weights, check products from another process (MODEL=file.safetensors)
	@deploy/deps.sh build demo
	@$(MAKE) --no-print-directory run-demo

run-demo: all $(BUILD)/gemm-demo $(BUILD)/direct-layer
	@GEMMD_BUILD=$(BUILD) tests/demo/demo.sh $(MODEL)

test: ## build and run every test that needs no GPU
	@deploy/deps.sh build test
	@$(MAKE) --no-print-directory run-tests

# programs of sources that are gone or have another name
STALE = $(filter-out $(TESTS),$(shell find $(BUILD)/tests -name 'test_*' -type f 2>/dev/null))

run-tests: all $(TESTS) $(addprefix $(BUILD)/,gemm-demo gemm-inprocess snapshot)
	@rm -f $(STALE)
	@# those that take long first
	@GEMMD_BUILD=$(BUILD) tests/run.sh $(PYTHON_TESTS) $(END_TO_END) $(CONFORMANCE) $(TEST_SCRIPTS) $(UNIT) $(UNIT_CLIENT) $(HEADER_CPP)

test-importers: all ## files of models as the tools themselves write them (downloads about 5 GB into .cache)
	@tests/python/environments/importers.sh
	@GEMMD_BUILD=$(BUILD) PYTHON=.cache/importers/bin/python tests/run.sh tests/python/test_importers.py

test-torch: all ## the PyTorch adapter and a real model (downloads about 5 GB into .cache; PYTHON=path has torch already)
	@$(if $(PYTHON),,tests/python/environments/torch.sh)
	@TEST_LIMIT_S=900 GEMMD_BUILD=$(BUILD) PYTHON=$(or $(PYTHON),.cache/python/bin/python) tests/run.sh tests/python/test_torch.py tests/python/test_transformers.py tests/python/test_torch_experts.py tests/python/test_trirun.py tests/python/test_model.py tests/python/test_perplexity.py

bench-torch: all ## what a GemmdLinear costs beside nn.Linear, and where (PYTHON=path of a python with torch and cffi; ARGUMENTS=...)
	@GEMMD_BUILD=$(BUILD) $(or $(PYTHON),.cache/python/bin/python) tests/python/bench/bench_torch.py $(ARGUMENTS)

test-comfyui: all ## the nodes in ComfyUI itself (COMFYUI=path of its sources, PYTHON=path of a python that can import it)
	@COMFYUI=$(abspath $(COMFYUI)) PYTHON=$(PYTHON) GEMMD_BUILD=$(BUILD) tests/run.sh tests/python/test_comfyui.py

test-kubernetes: ## deploy/kubernetes by Kubernetes' own schemas (installs kubernetes-validate from PyPI into .cache)
	@tests/python/environments/packages.sh kubernetes kubernetes-validate numpy
	@PYTHON=.cache/kubernetes/bin/python GEMMD_BUILD=$(BUILD) tests/run.sh tests/python/test_kubernetes.py

test-ray: all ## actors of Ray that share their node's gemmd, a node killed (installs Ray from PyPI into .cache)
	@tests/python/environments/packages.sh ray ray numpy cffi
	@PYTHON=.cache/ray/bin/python GEMMD_BUILD=$(BUILD) tests/run.sh tests/python/test_ray.py

test-image: ## the OCI image in a container (takes root)
	@$(MAKE) --no-print-directory image
	@tests/image.sh $(BUILD)/image $(VERSION)

test-vllm: all ## the vLLM plugin in vLLM, and in its HTTP server (installs about 7 GB into .cache; PYTHON=path has both already)
	@$(if $(PYTHON),,tests/python/environments/vllm.sh)
	@TEST_LIMIT_S=7200 PYTHON=$(or $(PYTHON),.cache/vllm/bin/python) GEMMD_BUILD=$(BUILD) tests/run.sh tests/python/test_vllm.py tests/python/test_vllm_server.py

bench-vllm: all ## requests a second, start and memory of vLLM's server, alone and with gemmd (MODEL=folder ARGUMENTS='"plain=" "int8=--quantization gemmd_int8"')
	@$(if $(PYTHON),,tests/python/environments/vllm.sh)
	@PYTHONPATH=client/python GEMMD_BUILD=$(BUILD) $(or $(PYTHON),.cache/vllm/bin/python) tests/python/bench/bench_vllm.py $(if $(MODEL),--model $(MODEL)) $(ARGUMENTS)

test-gpu: all $(CONFORMANCE) $(END_TO_END) ## conformance and end-to-end tests on the cuda backend
	@rm -f $(STALE)
	@GEMMD_BUILD=$(BUILD) tests/gpu.sh

test-gpu-sanitizers: $(CONFORMANCE) ## conformance on the cuda backend under compute-sanitizer's tools
	@GEMMD_BUILD=$(BUILD) tests/gpu_sanitizers.sh

test-compat: all $(BUILD)/gemm-demo ## version 0.1.0, rebuilt from its commit, beside this one: either's client, and an upgrade in place
	@GEMMD_BUILD=$(BUILD) tests/compat/run.sh

test-threads: ## where threads meet, under ThreadSanitizer: the pool, the CPU backend, the worker's engine, the rings
	@deploy/deps.sh build test
	@$(MAKE) --no-print-directory SANITIZE=thread run-test-threads

THREADS := $(addprefix $(BUILD)/tests/unit/,$(addprefix kernels/cpu/test_,pool cores backend) \
  daemon/worker/tune/test_tune_lister $(addprefix daemon/worker/serve/test_,engine events) proto/shm/test_ring_threads)
run-test-threads: $(THREADS)
	@GEMMD_BUILD=$(BUILD) tests/run.sh $(THREADS)

# ---- the CPU backend for 64-bit ARM: cross-compiled, run by qemu's user mode
ARM64 := build/arm64
ARM64_CC ?= aarch64-linux-gnu-gcc
ARM64_RUN ?= qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=$(ARM64)/root/usr/lib/aarch64-linux-gnu
ARM64_CFLAGS = $(filter-out -DGEMMD_CUDA,$(BASE_CFLAGS)) $(CFLAGS) -isystem $(ARM64)/root/usr/include -DKERNELS_HASH='"arm64"'
ARM64_OBJECTS := $(patsubst %,$(ARM64)/obj/%.o,$(addprefix proto/,gemm.c number.c place.c status.c) $(wildcard kernels/*.c) $(call below,kernels/cpu,c) \
  $(addprefix tests/support/,worker/device.c worker/micro.c reference/oracle.c worker/suite.c))
ARM64_TESTS := $(addprefix $(ARM64)/tests/,$(addprefix unit/kernels/cpu/test_,micro micro_tiles pool backend) \
  $(addprefix conformance/test_,conformance variants))

$(ARM64)/obj/%.c.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(ARM64_CC) $(ARM64_CFLAGS) $(if $(findstring kernels/cpu/,$<),-O3 $(NO_TRAPS)) -MMD -MP -c -o $@ $<

$(ARM64_TESTS): $(ARM64)/tests/%: $(ARM64)/obj/tests/%.c.o $(ARM64_OBJECTS)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(ARM64_CC) -o $@ $^ -L$(ARM64)/root/usr/lib/aarch64-linux-gnu -lcmocka $(SYSTEM_LIBS)

test-arm64: ## the CPU backend's tests for 64-bit ARM, cross-compiled and run by qemu
	@deploy/deps.sh build arm64
	@tests/arm64/prepare.sh $(ARM64)/root
	@$(MAKE) --no-print-directory run-test-arm64

run-test-arm64: $(ARM64_TESTS)
	@TEST_LIMIT_S=1800 TEST_RUN="$(ARM64_RUN)" GEMMD_BUILD=$(ARM64) tests/run.sh $(ARM64_TESTS)

test-systemd: all ## the packages under a real systemd, in a container, GEMMD_KILLS=12 of gemmd (takes root)
	@deploy/deps.sh build systemd
	@$(MAKE) --no-print-directory deb >$(BUILD)/deb.log 2>&1 || { tail -n 30 $(BUILD)/deb.log; exit 1; }
	@GEMMD_BUILD=$(BUILD) tests/systemd/run.sh

test-debian: ## gemmd built and tried in other releases of Debian (takes root; SUITES="bookworm trixie")
	@tests/debian/run.sh $(or $(SUITES),bookworm trixie)

test-wheel: ## the Python wheel, installed in a Debian without a compiler (takes root)
	@$(MAKE) --no-print-directory wheel
	@GEMMD_BUILD=$(BUILD) tests/wheel/run.sh

bench: all $(BUILD)/gemm-demo $(BUILD)/gemm-inprocess ## gemm-bench against a daemon of its own
	@GEMMD_BUILD=$(BUILD) tests/bench/bench.sh
	@GEMMD_BUILD=$(BUILD) tests/bench/tail.py --backend $(or $(BACKEND),cpu) --shapes 1536x384 --turns 2

bench-tuning: all ## what tuning costs and gives (PARTS="load mix twice sight exhaustive library", BACKEND=cuda)
	@GEMMD_BUILD=$(BUILD) tests/bench/tuning.py --backend $(or $(BACKEND),cpu) $(PARTS)

check: ## formatting, cppcheck, directions of includes, circles between modules
	@deploy/deps.sh build check
	@clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cc')
	@# invalidPointerCast: tensors whose type is known only at run time are bytes
	@cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr --error-exitcode=1 \
	  --suppress=missingInclude --suppress=syntaxError --suppress=invalidPointerCast -I. proto daemon client tests/gemm-bench kernels/cpu kernels/backend.c
	@tests/check_includes.sh
	@tests/check_modules.py
	@echo "check: nothing found"

.PHONY: test-compat demo run-demo test run-tests test-torch test-importers bench-torch test-comfyui test-kubernetes test-ray \
  test-image test-vllm bench-vllm test-gpu test-gpu-sanitizers test-arm64 \
  run-test-arm64 test-threads run-test-threads test-systemd test-wheel bench bench-tuning check
