# gemmd. `make help` lists the targets.

VERSION := 0.1.0
SOVERSION := 0
CC ?= cc
PREFIX ?= /usr/local
DESTDIR ?=
LIBDIR ?= $(PREFIX)/lib

# all cores, unless the caller says otherwise (a make above this one has said); V=1 shows the commands
ifeq ($(filter -j%,$(MAKEFLAGS))$(filter-out 0,$(MAKELEVEL)),)
MAKEFLAGS += -j$(shell nproc)
endif
comma := ,
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' $(1) $@)
BUILD := build$(if $(SANITIZE),/sanitize-$(subst $(comma),-,$(SANITIZE)))

MSGPACK := $(firstword $(foreach p,msgpack-c msgpack,$(shell pkg-config --exists $(p) 2>/dev/null && echo $(p))))
PACKAGES := libuv $(MSGPACK) inih jansson libb2
CFLAGS ?= -O2 -g
BASE_CFLAGS := -std=c17 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror -Wshadow -Wstrict-prototypes \
  -Wmissing-prototypes -fPIC -fvisibility=hidden -fstack-protector-strong -I. \
  -DGEMMD_RELEASE='"$(VERSION)"' $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
SYSTEM_LIBS := -lpthread -lm -ldl
LIBS := $(shell pkg-config --libs $(PACKAGES) 2>/dev/null) $(SYSTEM_LIBS)
MSGPACK_STATIC := -l:lib$(if $(filter msgpack-c,$(MSGPACK)),msgpack-c,msgpackc).a
STATIC_LIBS := -l:libuv_a.a $(MSGPACK_STATIC) -l:libinih.a -l:libjansson.a -l:libb2.a $(SYSTEM_LIBS)
ifneq ($(SANITIZE),)
BASE_CFLAGS += -fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer
LDFLAGS += -fsanitize=$(SANITIZE)
endif

# ---- the cuda backend is built where the toolkit is; libcuda and libcublasLt are opened at run time
NVCC ?= $(firstword $(wildcard /usr/local/cuda/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
ifneq ($(NVCC),)
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
BASE_CFLAGS += -DGEMMD_CUDA
CUDA_CFLAGS := -isystem $(CUDA_HOME)/include
NVCC_FLAGS := -O3 -std=c++17 --threads 2 -Xcompiler -fPIC,-fvisibility=hidden -I. -Xptxas -warn-spills,-Werror
# the last is for what is newer than this toolkit: the driver compiles it there
NVCC_ARCH := -gencode arch=compute_80,code=sm_80 -gencode arch=compute_89,code=sm_89 \
  -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_90,code=compute_90
# instructions that only Hopper has
build/obj/kernels/cuda/families/sm90/%.cu.o: NVCC_ARCH := -gencode arch=compute_90a,code=sm_90a
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -lcudart_static -lrt -l:libstdc++.a
endif

object = $(patsubst %,$(BUILD)/obj/%.o,$(1))
# the files of a kind in a folder and below it
below = $(sort $(shell find $(1) -name '*.$(2)'))
PROTO := $(call object,$(wildcard proto/*.c))
KERNELS := $(call object,$(wildcard kernels/*.c kernels/cpu/*.c))
ifneq ($(NVCC),)
KERNELS += $(call object,$(call below,kernels/cuda,c)) $(patsubst %,build/obj/%.o,$(call below,kernels/cuda,cu))
endif
# what files of weights hold, for the loader and for gemmctl
WEIGHTS := $(call object,$(wildcard proto/weights/*.c))
DAEMON := $(call object,$(filter-out daemon/main.c,$(wildcard daemon/*.c daemon/*/*.c))) $(WEIGHTS)
CLIENT := $(call object,$(wildcard client/*.c))
TOOL := $(call object,$(wildcard client/tool/*.c))
CTL := $(call object,$(wildcard client/ctl/*.c)) $(TOOL) $(WEIGHTS) $(PROTO)
BENCH := $(call object,$(wildcard client/bench/*.c tests/bench_kernels/*.c client/cuda/*.c)) $(TOOL) $(KERNELS) $(PROTO)
ifneq ($(NVCC),)
BENCH += $(call object,$(wildcard tests/bench_kernels/cuda/*.c)) build/obj/tests/bench_kernels/cuda/roof.cu.o
endif
DEMO := $(call object,$(wildcard tests/demo/*.c)) $(TOOL)
SUPPORT := $(call object,$(wildcard tests/support/*.c))
PROGRAMS := $(addprefix $(BUILD)/,gemmd gemmctl gemm-bench)
LIBRARIES := $(addprefix $(BUILD)/,libgemmclient.so libgemmclient.a libgemmclient-cuda.so)
# shared device memory for clients that have a GPU; opens the driver when it is called
CLIENT_CUDA := $(call object,$(wildcard client/cuda/*.c))

all: backend-note $(PROGRAMS) $(LIBRARIES) ## gemmd, gemmctl, gemm-bench and libgemmclient in build/

backend-note:
ifeq ($(NVCC),)
	@echo "gemmd: no CUDA toolkit found (nvcc): building without the cuda backend"
endif

$(BUILD)/gemmd: $(call object,daemon/main.c) $(DAEMON) $(KERNELS) $(PROTO)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) $(CUDA_LIBS)

# ---- the client: a shared object that exports gemmd_* only, an archive whose other symbols are local
$(BUILD)/libgemmclient.so.$(SOVERSION): $(CLIENT) $(PROTO) client/libgemmclient.map
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,libgemmclient.so.$(SOVERSION) -Wl,--version-script=client/libgemmclient.map \
	  -Wl,-z,defs -o $@ $(CLIENT) $(PROTO) $(shell pkg-config --libs $(MSGPACK)) $(SYSTEM_LIBS)

$(BUILD)/libgemmclient.so: $(BUILD)/libgemmclient.so.$(SOVERSION)
	$(Q)ln -sf $(<F) $@

$(BUILD)/libgemmclient.a: $(CLIENT) $(PROTO)
	$(call say,AR)
	$(Q)rm -f $@
	$(Q)$(LD) -r -o $(BUILD)/obj/gemmclient.o $^
	$(Q)objcopy --wildcard --keep-global-symbol='gemmd_*' $(BUILD)/obj/gemmclient.o
	$(Q)$(AR) rcs $@ $(BUILD)/obj/gemmclient.o

$(BUILD)/libgemmclient-cuda.so.$(SOVERSION): $(CLIENT_CUDA) $(BUILD)/libgemmclient.so client/libgemmclient.map
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,libgemmclient-cuda.so.$(SOVERSION) -Wl,--version-script=client/libgemmclient.map \
	  -Wl,-z,defs -o $@ $(CLIENT_CUDA) -L$(BUILD) -lgemmclient $(SYSTEM_LIBS)

$(BUILD)/libgemmclient-cuda.so: $(BUILD)/libgemmclient-cuda.so.$(SOVERSION)
	$(Q)ln -sf $(<F) $@

CLIENT_LIBS := $(shell pkg-config --libs $(MSGPACK) jansson 2>/dev/null) $(SYSTEM_LIBS)

# the screen of top
CTL_LIBS := $(shell pkg-config --libs ncursesw 2>/dev/null)
$(BUILD)/gemmctl: $(CTL) $(BUILD)/libgemmclient.a
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(CLIENT_LIBS) $(CTL_LIBS)

$(BUILD)/gemm-bench: $(BENCH) $(BUILD)/libgemmclient.a
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(CLIENT_LIBS) $(CUDA_LIBS)

$(BUILD)/gemm-demo: $(DEMO) $(BUILD)/libgemmclient.a
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(CLIENT_LIBS)

INPROCESS := $(call object,$(wildcard tests/bench/*.c))
$(BUILD)/gemm-inprocess: $(INPROCESS) $(KERNELS) $(PROTO)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) $(CUDA_LIBS)

# Sanitizers make the unrolled kernels so large that -O3 takes minutes.
KERNEL_OPTIMIZATION := $(if $(SANITIZE),-O1,-O3)

$(BUILD)/obj/%.c.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) $(if $(findstring kernels/cpu/,$<)$(findstring weights/matrix,$<),$(KERNEL_OPTIMIZATION)) $(if $(findstring /cuda/,$<)$(findstring tests/bench/,$<)$(findstring test_cuda_choice,$<)$(findstring test_cuda_compile,$<)$(findstring _places,$<),$(CUDA_CFLAGS)) \
	  -MMD -MP -c -o $@ $<

# what tunings are kept for: they are found anew where the source of a kernel changes
KERNEL_SOURCES := $(foreach kind,c h cu cuh,$(call below,kernels,$(kind)))
$(call object,kernels/identity.c): BASE_CFLAGS += -DKERNELS_HASH='"$(shell cat $(KERNEL_SOURCES) | sha256sum | cut -c1-12)"'
$(call object,kernels/identity.c): $(KERNEL_SOURCES)

# carried as text, for the compiler at run time
$(call object,kernels/cuda/families/tile/source.c): $(addprefix kernels/cuda/families/,tile/kernel.cuh tile/codes.cuh \
  tile/params.h sm90/int2/layout.h sm90/int2/dense.cuh sm90/int2/a8_layout.h)

build/obj/%.cu.o: %.cu Makefile
	@mkdir -p $(@D)
	$(call say,NVCC)
	$(Q)$(NVCC) $(NVCC_FLAGS) $(NVCC_ARCH) -MMD -MP -c -o $@ $<

# ---- adapters to inference servers, each against a tree of theirs that the caller has
GGML_SOURCES := $(wildcard client/ggml/*.c)
$(BUILD)/libggml-gemmd.so: $(GGML_SOURCES) client/ggml/gemmd_ggml.h client/gemmclient.h $(BUILD)/libgemmclient.a
	$(call say,LINK)
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) $(LDFLAGS) -shared -Iclient -isystem $(GGML)/include -isystem $(GGML)/src -DGGML_BACKEND_DL \
	  -DGGML_SHARED -DGGML_BACKEND_SHARED -DGGML_BACKEND_BUILD -Wl,--exclude-libs,ALL -Wl,-z,defs -o $@ $(GGML_SOURCES) \
	  $(BUILD)/libgemmclient.a $(CLIENT_LIBS) -lb2 -L$(GGML)/build/src -lggml-base

ggml: $(BUILD)/libgemmclient.a ## a backend for ggml: build/libggml-gemmd.so (GGML=path of a ggml tree that is built in its build/)
	@test -f "$(GGML)/src/ggml-backend-impl.h" || { echo "make ggml GGML=path of a built ggml tree" >&2; exit 2; }
	@$(MAKE) --no-print-directory GGML=$(abspath $(GGML)) $(BUILD)/libggml-gemmd.so

test-ggml: all ## ggml's own test-backend-ops over the backend (GGML=path of a ggml tree built with its tests)
	@$(MAKE) --no-print-directory ggml
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) $(LDFLAGS) -isystem $(GGML)/include -o $(BUILD)/ggml-test-model tests/ggml/test_model.c \
	  -L$(GGML)/build/src -lggml -lggml-base -lm
	@GEMMD_BUILD=$(BUILD) tests/ggml.sh $(GGML)

TRITON_SOURCES := $(wildcard client/triton/*.c)
$(BUILD)/libtriton_gemmd.so: $(TRITON_SOURCES) client/triton/gemmd_triton.h client/gemmclient.h $(BUILD)/libgemmclient.a
	$(call say,LINK)
	$(Q)$(CC) $(BASE_CFLAGS) -fvisibility=default $(CFLAGS) $(LDFLAGS) -shared -Iclient -isystem $(TRITON)/include -Wl,--exclude-libs,ALL \
	  -Wl,--version-script=client/triton/exports.map -o $@ $(TRITON_SOURCES) $(BUILD)/libgemmclient.a $(CLIENT_LIBS)

triton: $(BUILD)/libgemmclient.a ## a backend for Triton Inference Server: build/libtriton_gemmd.so (TRITON=path of the server's core headers)
	@test -f "$(TRITON)/include/triton/core/tritonbackend.h" || { echo "make triton TRITON=path that holds include/triton/core" >&2; exit 2; }
	@$(MAKE) --no-print-directory TRITON=$(abspath $(TRITON)) $(BUILD)/libtriton_gemmd.so

test-triton: all ## the backend in a real server (TRITON=headers TRITONSERVER=path of tritonserver)
	@$(MAKE) --no-print-directory triton
	@TRITONSERVER="$(TRITONSERVER)" GEMMD_BUILD=$(BUILD) tests/run.sh tests/python/test_triton.py

# ---- tests: a program a file
test_program = $(patsubst tests/%.c,$(BUILD)/tests/%,$(1))
UNIT_CLIENT := $(call test_program,$(wildcard tests/unit/test_client_*.c))
# what the cuda backend decides without a device is tested on every machine
PURE := $(call object,$(addprefix kernels/cuda/,heuristics/clusters.c heuristics/ranking.c heuristics/roof.c exec/launches.c \
  exec/staging.c weight/layout.c families/tile/code_cache.c $(addprefix families/sm90/int2/,a8_tile.c cut.c tile.c variants.c)) \
  $(wildcard kernels/cuda/families/*/config.c kernels/cuda/families/sm90/*/config.c))
NEEDS_TOOLKIT := $(addprefix $(BUILD)/tests/unit/,test_cuda_choice test_cuda_compile test_cuda_places)
UNIT := $(filter-out $(UNIT_CLIENT) $(if $(NVCC),,$(NEEDS_TOOLKIT)),$(call test_program,$(wildcard tests/unit/test_*.c)))
CONFORMANCE := $(call test_program,$(wildcard tests/conformance/test_*.c))
END_TO_END := $(call test_program,$(wildcard tests/end_to_end/test_*.c))
HEADER_CPP := $(patsubst tests/%.cc,$(BUILD)/tests/%,$(wildcard tests/unit/test_*.cc))
TESTS := $(UNIT) $(UNIT_CLIENT) $(HEADER_CPP) $(CONFORMANCE) $(END_TO_END)
TEST_SCRIPTS := $(wildcard tests/*/test_*.sh tests/check_*.sh)
PYTHON_TESTS := $(addprefix tests/python/,test_client.py test_async.py test_quantize.py)
TEST_LIBS := -lcmocka $(LIBS)

$(BUILD)/tests.a: $(SUPPORT) $(if $(NVCC),,$(PURE))
	$(call say,AR)
	$(Q)rm -f $@
	$(Q)$(AR) rcs $@ $^

$(UNIT) $(CONFORMANCE): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.c.o $(BUILD)/tests.a $(DAEMON) $(KERNELS) $(PROTO)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $< $(DAEMON) $(KERNELS) $(PROTO) $(BUILD)/tests.a $(TEST_LIBS) $(CUDA_LIBS)

$(call object,tests/unit/test_client_cuda.c): BASE_CFLAGS += $(CUDA_CFLAGS)
$(UNIT_CLIENT) $(END_TO_END): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.c.o $(BUILD)/tests.a $(CLIENT) $(CLIENT_CUDA) $(PROTO)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $< $(BUILD)/tests.a $(CLIENT) $(CLIENT_CUDA) $(PROTO) $(TEST_LIBS)

$(HEADER_CPP): $(BUILD)/tests/%: tests/%.cc $(BUILD)/libgemmclient.a client/gemmclient.h
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CXX) -std=c++17 -Wall -Wextra -Wpedantic -Werror -I. $(LDFLAGS) -o $@ $< $(BUILD)/libgemmclient.a -lcmocka $(CLIENT_LIBS)

demo: ## set everything up, load real weights, check products from another process (MODEL=file.safetensors)
	@deploy/deps.sh build demo
	@$(MAKE) --no-print-directory run-demo

run-demo: all $(BUILD)/gemm-demo
	@GEMMD_BUILD=$(BUILD) tests/demo/demo.sh $(MODEL)

test: ## build and run every test that needs no GPU
	@deploy/deps.sh build test
	@$(MAKE) --no-print-directory run-tests

run-tests: all $(TESTS) $(BUILD)/gemm-demo
	@GEMMD_BUILD=$(BUILD) tests/run.sh $(TESTS) $(TEST_SCRIPTS) $(PYTHON_TESTS)

test-torch: all ## the PyTorch adapter and a real model (downloads about 5 GB into .cache; PYTHON=path has torch already)
	@$(if $(PYTHON),,tests/python/environment.sh)
	@TEST_LIMIT_S=900 GEMMD_BUILD=$(BUILD) PYTHON=$(or $(PYTHON),.cache/python/bin/python) tests/run.sh tests/python/test_torch.py tests/python/test_trirun.py tests/python/test_model.py

bench-torch: all ## what a GemmdLinear costs beside nn.Linear, and where (PYTHON=path of a python with torch and cffi; ARGUMENTS=...)
	@GEMMD_BUILD=$(BUILD) $(or $(PYTHON),.cache/python/bin/python) tests/python/bench_torch.py $(ARGUMENTS)

test-vllm: all ## the vLLM plugin in the vLLM package (PYTHON=path of a python with vllm and gemmclient installed)
	@PYTHON=$(PYTHON) GEMMD_BUILD=$(BUILD) tests/run.sh tests/python/test_vllm.py

test-gpu: all $(CONFORMANCE) $(END_TO_END) ## conformance and end-to-end tests on the cuda backend
	@GEMMD_BUILD=$(BUILD) tests/gpu.sh

test-gpu-sanitizers: $(CONFORMANCE) ## conformance on the cuda backend under compute-sanitizer's tools
	@GEMMD_BUILD=$(BUILD) tests/gpu_sanitizers.sh

test-threads: ## where threads meet, under ThreadSanitizer: the pool, the CPU backend, the worker's engine, the rings
	@deploy/deps.sh build test
	@$(MAKE) --no-print-directory SANITIZE=thread run-test-threads

THREADS := $(addprefix $(BUILD)/tests/unit/,test_cpu_pool test_cpu_cores test_cpu_backend test_tune_lister test_worker_engine test_worker_events test_ring_threads)
run-test-threads: $(THREADS)
	@GEMMD_BUILD=$(BUILD) tests/run.sh $(THREADS)

# ---- the CPU backend for 64-bit ARM: cross-compiled, run by qemu's user mode
ARM64 := build/arm64
ARM64_CC ?= aarch64-linux-gnu-gcc
ARM64_RUN ?= qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH=$(ARM64)/root/usr/lib/aarch64-linux-gnu
ARM64_CFLAGS = $(filter-out -DGEMMD_CUDA,$(BASE_CFLAGS)) $(CFLAGS) -isystem $(ARM64)/root/usr/include -DKERNELS_HASH='"arm64"'
ARM64_OBJECTS := $(patsubst %,$(ARM64)/obj/%.o,$(addprefix proto/,gemm.c number.c status.c) $(wildcard kernels/*.c kernels/cpu/*.c) \
  $(addprefix tests/support/,device.c micro.c oracle.c suite.c))
ARM64_TESTS := $(addprefix $(ARM64)/tests/,unit/test_cpu_micro unit/test_cpu_micro_tiles unit/test_cpu_pool unit/test_cpu_backend conformance/test_conformance conformance/test_variants)

$(ARM64)/obj/%.c.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(ARM64_CC) $(ARM64_CFLAGS) $(if $(findstring kernels/cpu/,$<),-O3) -MMD -MP -c -o $@ $<

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

test-systemd: all ## the packages under a real systemd, in a container (takes root)
	@deploy/deps.sh build systemd
	@$(MAKE) --no-print-directory deb >$(BUILD)/deb.log 2>&1 || { tail -n 30 $(BUILD)/deb.log; exit 1; }
	@GEMMD_BUILD=$(BUILD) tests/systemd/run.sh

# ---- fuzzing: clang's libFuzzer; every object once more, with its instruments
FUZZ_CC ?= clang
FUZZ_FLAGS := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g -O1
FUZZ := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
fuzz_object = $(patsubst %,$(BUILD)/fuzz/obj/%.o,$(1))
FUZZ_DAEMON := $(call fuzz_object,$(wildcard proto/*.c) daemon/config.c daemon/log.c daemon/memfd.c $(wildcard daemon/loader/*.c proto/weights/*.c) \
  $(addprefix daemon/supervisor/,catalog.c catalog_image.c extents.c) $(addprefix daemon/worker/,handles.c plans.c) \
  daemon/transport.c daemon/worker/tune_db.c kernels/variant.c)
FUZZ_CLIENT := $(call fuzz_object,$(wildcard proto/*.c client/*.c))

$(BUILD)/fuzz/obj/%.c.o: %.c Makefile
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(FUZZ_CC) $(filter-out -DGEMMD_CUDA,$(BASE_CFLAGS)) $(FUZZ_FLAGS) -fsanitize=fuzzer-no-link -MMD -MP -c -o $@ $<

$(filter-out %/fuzz_client,$(FUZZ)): $(BUILD)/fuzz/%: $(BUILD)/fuzz/obj/tests/fuzz/%.c.o $(FUZZ_DAEMON)
	$(call say,LINK)
	$(Q)$(FUZZ_CC) $(FUZZ_FLAGS) -fsanitize=fuzzer -o $@ $^ $(LIBS)

$(BUILD)/fuzz/fuzz_client: $(BUILD)/fuzz/obj/tests/fuzz/fuzz_client.c.o $(FUZZ_CLIENT)
	$(call say,LINK)
	$(Q)$(FUZZ_CC) $(FUZZ_FLAGS) -fsanitize=fuzzer -o $@ $^ $(LIBS)

FAULTS_SUPPORT := $(call object,tests/chaos/pauses.c tests/chaos/vast.c) $(BUILD)/tests.a
$(BUILD)/chaos $(BUILD)/faults $(BUILD)/held: $(BUILD)/%: $(BUILD)/obj/tests/chaos/%.c.o $(FAULTS_SUPPORT) $(CLIENT) $(PROTO)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $< $(FAULTS_SUPPORT) $(CLIENT) $(PROTO) $(TEST_LIBS)

$(BUILD)/isolation: $(BUILD)/obj/tests/isolation/isolation.c.o $(BUILD)/tests.a $(CLIENT) $(PROTO)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $< $(BUILD)/tests.a $(CLIENT) $(PROTO) $(TEST_LIBS)

bench-isolation: ## hostile products beside a good client: how long that waits (ARGUMENTS="first step patience_ms")
	@deploy/deps.sh build test
	@$(MAKE) --no-print-directory run-bench-isolation

run-bench-isolation: all $(BUILD)/isolation
	@GEMMD_BUILD=$(BUILD) $(BUILD)/isolation $(ARGUMENTS)

# the real libraries with kernels that fail when a test says so
$(BUILD)/libcublaslt-faulty.so: tests/chaos/faulty_cublaslt.cu tests/chaos/faulty.h
	@mkdir -p $(@D)
	$(call say,NVCC)
	$(Q)$(NVCC) -O2 -std=c++17 -shared -Xcompiler -fPIC,-fvisibility=hidden $(NVCC_ARCH) -o $@ $< -Xlinker --no-as-needed -lcublasLt -ldl

$(BUILD)/libnvrtc-faulty.so: tests/chaos/faulty_nvrtc.c tests/chaos/faulty.h
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(BASE_CFLAGS) $(CUDA_CFLAGS) $(CFLAGS) -shared -o $@ $< -L$(CUDA_HOME)/lib64 -Wl,--no-as-needed -lnvrtc -ldl

chaos: ## dozens of clients that die, stop, scribble and lie, and some that check, CHAOS_S=600 seconds, CHAOS_SEED=1
	@deploy/deps.sh build test
	@$(MAKE) --no-print-directory run-chaos

faults: ## one fault after the other under load, and the pauses that clients saw; with FAULTS_GB=0.06 of weights
	@deploy/deps.sh build test
	@$(MAKE) --no-print-directory run-faults

run-faults: all $(BUILD)/faults $(BUILD)/held $(if $(NVCC),$(addprefix $(BUILD)/,libcublaslt-faulty.so libnvrtc-faulty.so))
	@GEMMD_BUILD=$(BUILD) $(BUILD)/faults
	@GEMMD_BUILD=$(BUILD) $(BUILD)/held $(or $(FAULTS_GB),0.06)

run-chaos: all $(BUILD)/chaos
	@TEST_LIMIT_S=$$(($${CHAOS_S:-600} + 120)) GEMMD_BUILD=$(BUILD) tests/chaos/run.sh $(BUILD)/chaos

fuzz: ## all fuzz targets over their corpus, FUZZ_S=60 seconds together
	@deploy/deps.sh build fuzz
	@$(MAKE) --no-print-directory run-fuzz

run-fuzz: $(FUZZ)
	@GEMMD_BUILD=$(BUILD) tests/fuzz/run.sh

bench: all $(BUILD)/gemm-demo $(BUILD)/gemm-inprocess ## gemm-bench against a daemon of its own
	@GEMMD_BUILD=$(BUILD) tests/bench/bench.sh
	@GEMMD_BUILD=$(BUILD) tests/bench/tail.py --backend $(or $(BACKEND),cpu) --shapes 1536x384 --turns 2

bench-tuning: all ## what tuning costs and gives (PARTS="load twice sight exhaustive library", BACKEND=cuda)
	@GEMMD_BUILD=$(BUILD) tests/bench/tuning.py --backend $(or $(BACKEND),cpu) $(PARTS)

check: ## formatting, cppcheck, directions of includes
	@deploy/deps.sh build check
	@clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h' '*.cu' '*.cuh' '*.cc')
	@# invalidPointerCast: tensors whose type is known only at run time are bytes
	@cppcheck --quiet --std=c11 --enable=warning,portability --inline-suppr --error-exitcode=1 \
	  --suppress=missingInclude --suppress=syntaxError --suppress=invalidPointerCast -I. proto daemon client kernels/cpu kernels/registry.c
	@tests/check_includes.sh
	@echo "check: nothing found"

# ---- one tar for hosts that have none of the packages; with its tests, for machines with a GPU
BUNDLE := $(BUILD)/gemmd-$(VERSION)-x86_64
BUNDLE_PROGRAMS := $(addprefix $(BUNDLE)/bin/,gemmd gemmctl gemm-bench gemm-demo)
BUNDLE_LIBRARIES := $(addprefix $(BUNDLE)/lib/,libgemmclient.so.$(SOVERSION) libgemmclient.a)
BUNDLE_TESTS := $(patsubst $(BUILD)/%,$(BUNDLE)/%,$(CONFORMANCE) $(END_TO_END))
BUNDLE_TEST_LIBS := -Wl,-rpath,'$$ORIGIN/../../lib' -lcmocka $(STATIC_LIBS)

$(BUNDLE)/bin/gemmd: $(call object,daemon/main.c) $(DAEMON) $(KERNELS) $(PROTO)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(STATIC_LIBS) $(CUDA_LIBS)

$(BUNDLE)/lib/libgemmclient.so.$(SOVERSION): $(CLIENT) $(PROTO) client/libgemmclient.map
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,libgemmclient.so.$(SOVERSION) -Wl,--version-script=client/libgemmclient.map \
	  -Wl,-z,defs -o $@ $(CLIENT) $(PROTO) $(MSGPACK_STATIC) $(SYSTEM_LIBS)

$(BUNDLE)/lib/libgemmclient.a: $(CLIENT) $(PROTO)
	@mkdir -p $(@D)
	$(call say,AR)
	$(Q)rm -f $@
	$(Q)$(CC) -r -nostdlib -o $(BUNDLE)/gemmclient.o $^ $(MSGPACK_STATIC)
	$(Q)objcopy --wildcard --keep-global-symbol='gemmd_*' $(BUNDLE)/gemmclient.o
	$(Q)$(AR) rcs $@ $(BUNDLE)/gemmclient.o
	$(Q)rm $(BUNDLE)/gemmclient.o

$(BUNDLE)/bin/gemmctl: $(CTL)
$(BUNDLE)/bin/gemm-bench: $(BENCH)
$(BUNDLE)/bin/gemm-demo: $(DEMO)
$(filter-out %/gemmd,$(BUNDLE_PROGRAMS)): $(BUILD)/libgemmclient.a
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $(filter %.o,$^) $(BUILD)/libgemmclient.a $(STATIC_LIBS) $(if $(findstring bench,$@),$(CUDA_LIBS)) \
	  $(if $(findstring ctl,$@),-l:libncursesw.a -l:libtinfo.a)

$(patsubst $(BUILD)/%,$(BUNDLE)/%,$(CONFORMANCE)): $(BUNDLE)/tests/%: $(BUILD)/obj/tests/%.c.o $(BUILD)/tests.a $(KERNELS) $(PROTO)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $< $(BUILD)/tests.a $(KERNELS) $(PROTO) $(BUNDLE_TEST_LIBS) $(CUDA_LIBS)

$(patsubst $(BUILD)/%,$(BUNDLE)/%,$(END_TO_END)): $(BUNDLE)/tests/%: $(BUILD)/obj/tests/%.c.o $(BUILD)/tests.a $(CLIENT) $(CLIENT_CUDA) $(PROTO)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $< $(BUILD)/tests.a $(CLIENT) $(CLIENT_CUDA) $(PROTO) $(BUNDLE_TEST_LIBS)

bundle: $(BUNDLE_PROGRAMS) $(BUNDLE_LIBRARIES) $(BUNDLE_TESTS) $(BUILD)/libgemmclient-cuda.so ## one tar that runs on another x86-64 Linux with nothing installed
	@mkdir -p $(BUNDLE)/lib $(BUNDLE)/include $(BUNDLE)/etc
	cp -L $(BUILD)/libgemmclient-cuda.so.$(SOVERSION) $(BUNDLE)/lib/
	ln -sf libgemmclient.so.$(SOVERSION) $(BUNDLE)/lib/libgemmclient.so
	ln -sf libgemmclient-cuda.so.$(SOVERSION) $(BUNDLE)/lib/libgemmclient-cuda.so
	cp client/gemmclient.h client/gemmclient_cuda.h $(BUNDLE)/include/
	cp deploy/gemmd.conf $(BUNDLE)/etc/
	cp README.md LICENSE $(BUNDLE)/
	cp tests/gpu.sh tests/gpu_sanitizers.sh tests/run.sh tests/demo/demo.sh $(BUNDLE)/tests/
	cp -L $(shell $(CC) -print-file-name=libcmocka.so.0) $(BUNDLE)/lib/
	tar -C $(BUILD) -czf $(BUNDLE).tar.gz $(notdir $(BUNDLE))
	@ls -lh $(BUNDLE).tar.gz

INSTALL_BIN := $(DESTDIR)$(PREFIX)/bin
INSTALL_LIB := $(DESTDIR)$(LIBDIR)
INSTALL_MAN := $(DESTDIR)$(PREFIX)/share/man
install: all ## into $(DESTDIR)$(PREFIX); the units into $(DESTDIR)$(PREFIX)/lib/systemd, gemmd.conf into $(DESTDIR)/etc/gemmd
	install -Dm755 -t $(INSTALL_BIN) $(PROGRAMS)
	install -Dm755 -t $(INSTALL_LIB) $(BUILD)/libgemmclient.so.$(SOVERSION) $(BUILD)/libgemmclient-cuda.so.$(SOVERSION)
	ln -sf libgemmclient.so.$(SOVERSION) $(INSTALL_LIB)/libgemmclient.so
	ln -sf libgemmclient-cuda.so.$(SOVERSION) $(INSTALL_LIB)/libgemmclient-cuda.so
	install -Dm644 -t $(INSTALL_LIB) $(BUILD)/libgemmclient.a
	install -Dm644 -t $(DESTDIR)$(PREFIX)/include client/gemmclient.h client/gemmclient_cuda.h
	install -d $(INSTALL_LIB)/pkgconfig $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@LIBDIR@|$(LIBDIR)|g' -e 's|@VERSION@|$(VERSION)|g' \
	  -e 's|@LIBS_PRIVATE@|$(shell pkg-config --libs $(MSGPACK)) $(SYSTEM_LIBS)|g' deploy/gemmclient.pc.in \
	  >$(INSTALL_LIB)/pkgconfig/gemmclient.pc
	sed -e 's|/usr/bin/|$(PREFIX)/bin/|g' deploy/gemmd.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/gemmd.service
	sed -e 's|/usr/bin/|$(PREFIX)/bin/|g' deploy/gemmd-metrics.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/gemmd-metrics.service
	install -Dm644 -t $(DESTDIR)$(PREFIX)/lib/systemd/system deploy/gemmd.socket
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/gemmd deploy/gemmd.rules.yml deploy/gemmd.dashboard.json
	install -Dm644 deploy/gemmd.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/gemmd.conf
	install -Dm644 deploy/gemmd.tmpfiles $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/gemmd.conf
	test -e $(DESTDIR)/etc/gemmd/gemmd.conf || install -Dm644 -t $(DESTDIR)/etc/gemmd deploy/gemmd.conf
	install -Dm644 deploy/gemmctl.bash-completion $(DESTDIR)$(PREFIX)/share/bash-completion/completions/gemmctl
	ln -sf gemmctl $(DESTDIR)$(PREFIX)/share/bash-completion/completions/gemm-bench
	install -Dm644 -t $(INSTALL_MAN)/man1 deploy/gemmctl.1 deploy/gemm-bench.1
	install -Dm644 -t $(INSTALL_MAN)/man5 deploy/gemmd.conf.5
	install -Dm644 -t $(INSTALL_MAN)/man8 deploy/gemmd.8

# what a second installation, elsewhere, consists of
INSTALLED := $(abspath $(BUILD)/installed)
uninstall: all ## removes what install with the same PREFIX, LIBDIR and DESTDIR has put there, but for a gemmd.conf that was changed
	$(Q)rm -rf $(INSTALLED)
	$(Q)$(MAKE) --no-print-directory install DESTDIR=$(INSTALLED)
	@cd $(INSTALLED) && find * ! -type d | while read -r file; do \
	  case $$file in etc/*) cmp -s $$file "$(DESTDIR)/$$file" || continue ;; esac; rm -f "$(DESTDIR)/$$file"; done
	@rmdir --ignore-fail-on-non-empty $(wildcard $(DESTDIR)/etc/gemmd $(DESTDIR)$(PREFIX)/share/gemmd)
	$(Q)rm -rf $(INSTALLED)

# debian/ stands below deploy/, and the packages are built from a copy of the sources that has it where it belongs
DEB := $(BUILD)/deb
deb: ## Debian packages: gemmd, libgemmclient0, libgemmclient-cuda0 and libgemmclient-dev, in build/deb
	@deploy/deps.sh build deb
	rm -rf $(DEB)
	mkdir -p $(DEB)/gemmd-$(VERSION)
	tar -c --exclude=./build --exclude=./.git --exclude=./.cache . | tar -x -C $(DEB)/gemmd-$(VERSION)
	mv $(DEB)/gemmd-$(VERSION)/deploy/debian $(DEB)/gemmd-$(VERSION)/debian
	cd $(DEB)/gemmd-$(VERSION) && dpkg-buildpackage --build=binary --no-sign
	rm -rf $(DEB)/gemmd-$(VERSION)
	lintian --allow-root --fail-on error,warning $(DEB)/*.changes
	@ls -l $(DEB)/*.deb

clean: ## remove build/
	rm -rf build

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

-include $(shell find build $(BUILD) -name '*.d' 2>/dev/null)
.PHONY: all backend-note demo run-demo test run-tests ggml test-ggml triton test-triton test-torch bench-torch test-vllm test-gpu test-gpu-sanitizers test-arm64 run-test-arm64 test-threads run-test-threads chaos run-chaos faults run-faults bench-isolation run-bench-isolation fuzz run-fuzz test-systemd bench check bundle deb install uninstall clean help
