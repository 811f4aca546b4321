# gemmd. `make help` lists the targets. Here is what a build makes: the libraries and programs. Beside what they are
# about stand client/adapters.mk, tests/tests.mk, tests/stress.mk and deploy/package.mk.

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
PACKAGES := libuv $(MSGPACK) jansson libb2
# what a build cannot do without, by the names that pkg-config has for it; of hwloc and libmicrohttpd the headers
NEEDED := libuv $(or $(MSGPACK),msgpack) jansson libb2 hwloc libmicrohttpd ncursesw
MISSING := $(shell pkg-config --exists $(NEEDED) 2>/dev/null || for package in $(NEEDED); do \
  pkg-config --exists $$package 2>/dev/null || echo $$package; done)
CFLAGS ?= -O2 $(if $(SANITIZE),-g1,-g)
# a function of a table need not want all that its kind is given
BASE_CFLAGS := -std=c17 -D_GNU_SOURCE -Wall -Wextra -Wno-unused-parameter -Wpedantic -Werror -Wshadow -Wstrict-prototypes \
  -Wmissing-prototypes -fPIC -fvisibility=hidden -fstack-protector-strong -I. \
  -DGEMMD_RELEASE='"$(VERSION)"' $(shell pkg-config --cflags $(PACKAGES) 2>/dev/null)
SYSTEM_LIBS := -lpthread -lm -ldl
LIBS := $(shell pkg-config --libs $(PACKAGES) 2>/dev/null) $(SYSTEM_LIBS)
MSGPACK_STATIC := -l:lib$(if $(filter msgpack-c,$(MSGPACK)),msgpack-c,msgpackc).a
STATIC_LIBS := -l:libuv_a.a $(MSGPACK_STATIC) -l:libjansson.a -l:libb2.a $(SYSTEM_LIBS)
ifneq ($(SANITIZE),)
# fences, which the thread sanitizer does not follow, stand between atomic accesses alone (proto/shm/published.c)
BASE_CFLAGS += -fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer $(if $(findstring thread,$(SANITIZE)),-Wno-tsan)
LDFLAGS += -fsanitize=$(SANITIZE)
endif

# ---- the cuda backend is built where the toolkit is; libcuda and libcublasLt are opened at run time
NVCC ?= $(firstword $(wildcard /usr/local/cuda/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
ifneq ($(NVCC),)
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
BASE_CFLAGS += -DGEMMD_CUDA
CUDA_CFLAGS := -isystem $(CUDA_HOME)/include
NVCC_HELP := $(shell $(NVCC) --help)
# NVCC_FAST=1, where nobody runs what is built on a GPU: device code in a quarter of the time, and slow; launches are not
# optimized
NVCC_OPTIMIZE := $(if $(NVCC_FAST),$(if $(findstring fast-compile,$(NVCC_HELP)),-Ofc=max,-Xptxas -O1),-Xptxas -warn-spills,-Werror)
NVCC_FLAGS = $(if $(NVCC_FAST),-O0,-O3) -std=c++17 --threads 2 -Xcompiler -fPIC -I. $(NVCC_OPTIMIZE)
# Device code is a seventh of its size in objects; drivers read it since those of CUDA 12.4. NVCC_COMPRESS= leaves it out.
NVCC_COMPRESS ?= $(if $(findstring compress-mode,$(NVCC_HELP)),--compress-mode=size)
# CUDA_ARCH='80 90': device code for these compute capabilities alone; native: for those of this machine's GPUs
CUDA_ARCH ?= 80 89 90
ARCHS := $(if $(filter native,$(CUDA_ARCH)),$(shell nvidia-smi --query-gpu=compute_cap --format=csv,noheader | tr -d .),$(CUDA_ARCH))
ifeq ($(filter 8% 9% 1%,$(ARCHS)),)
$(error CUDA_ARCH=$(CUDA_ARCH): no GPU of compute capability 8.0 or later, for which there are kernels)
endif
ARCHS_AMPERE := $(filter 80 86 87 88,$(ARCHS))
ARCHS_HOPPER := $(filter-out 80 86 87 88 89,$(ARCHS))
CODE_80 := -gencode arch=compute_80,code=sm_80
# For what is newer than this toolkit the last is compiled by the driver, there.
CODE_90 := -gencode arch=compute_90,code=[sm_90,compute_90]
CODE_OF_90 := $(if $(ARCHS_HOPPER),$(CODE_90))
NVCC_ARCH := $(if $(filter-out $(ARCHS_HOPPER),$(ARCHS)),$(CODE_80)) $(CODE_OF_90)
# FP8 is converted by instructions of 8.9, which runs 8.0's code otherwise
FP8_KERNELS := experts/gather families/pairs/launch families/plain/launch families/sm80/rows/instances_fp8 \
  passes/activate passes/input passes/quantize weight/convert_kernels
$(FP8_KERNELS:%=build/obj/kernels/cuda/%.cu.o): NVCC_ARCH := -DCOMPILED_FOR_89 $(if $(ARCHS_AMPERE),$(CODE_80)) \
  $(if $(NVCC_FAST),,$(if $(filter 89,$(ARCHS)),-gencode arch=compute_89$(comma)code=sm_89)) $(CODE_OF_90)
# instructions that only Hopper has
build/obj/kernels/cuda/families/sm90/%.cu.o build/obj/kernels/cuda/tensors/sm90/%.cu.o: NVCC_ARCH := -gencode arch=compute_90a,code=sm_90a
ifneq ($(findstring fdevice-syntax-only,$(NVCC_HELP)),)
ifeq ($(ARCHS_HOPPER),)
build/obj/kernels/cuda/families/sm90/%.cu.o build/obj/kernels/cuda/tensors/sm90/%.cu.o: NVCC_OPTIMIZE := -fdevice-syntax-only
endif
ifneq ($(NVCC_FAST),)
# of the kernels that one template makes for several types those of one are compiled to the end
$(patsubst %,build/obj/%.o,$(wildcard kernels/cuda/families/*/*/instances_bf16*.cu kernels/cuda/families/*/*/instances_*_*.cu)): \
  NVCC_OPTIMIZE := -fdevice-syntax-only
endif
endif
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -lcudart_static -lrt -l:libstdc++.a
endif

object = $(patsubst %,$(BUILD)/obj/%.o,$(1))
# the files of a kind in a folder and below it
below = $(sort $(shell find $(1) -name '*.$(2)'))
PROTO_SOURCES := $(wildcard proto/*.c proto/wire/*.c proto/shm/*.c)
PROTO := $(call object,$(PROTO_SOURCES))
KERNELS := $(call object,$(wildcard kernels/*.c) $(call below,kernels/cpu,c))
ifneq ($(NVCC),)
KERNELS += $(call object,$(call below,kernels/cuda,c)) $(patsubst %,build/obj/%.o,$(call below,kernels/cuda,cu))
endif
# what of proto/ the kernels see
KERNELS += $(call object,proto/gemm.c proto/number.c proto/place.c proto/status.c)
# what files of weights hold, for the loader and for gemmctl
WEIGHTS := $(call object,$(wildcard proto/weights/*.c proto/weights/*/*.c))
DAEMON := $(call object,$(filter-out daemon/main.c,$(call below,daemon,c)))
# of that, what the client needs to know of the files of a model
MODEL_FILES := $(addprefix proto/weights/,safetensors.c gguf.c gguf_types.c header.c) $(wildcard proto/weights/import/*.c)
CLIENT_SOURCES := $(wildcard $(addsuffix /*.c,$(addprefix client/,session submit memory weight model))) $(MODEL_FILES)
CLIENT := $(call object,$(CLIENT_SOURCES))
TOOL := $(call object,$(wildcard client/tool/*.c))
CTL := $(call object,$(call below,client/ctl,c)) $(TOOL)
BENCH := $(call object,$(wildcard tests/gemm-bench/*.c tests/gemm-bench/kernels/*.c client/cuda/*.c)) $(TOOL)
ifneq ($(NVCC),)
BENCH += $(call object,$(wildcard tests/gemm-bench/kernels/cuda/*.c)) build/obj/tests/gemm-bench/kernels/cuda/roof.cu.o
endif
PROGRAMS := $(addprefix $(BUILD)/,gemmd gemmctl gemm-bench)
LIBRARIES := $(addprefix $(BUILD)/,libgemmclient.so libgemmclient.a libgemmclient-cuda.so libgemmclient-direct.so)
# shared device memory for clients that have a GPU; opens the driver when it is called
CLIENT_CUDA := $(call object,$(wildcard client/cuda/*.c))
# products in the client's own process
CLIENT_DIRECT := $(call object,$(wildcard client/direct/*.c))

all: packages backend-note $(PROGRAMS) $(LIBRARIES) $(BUILD)/protocol.json ## gemmd, gemmctl, gemm-bench and libgemmclient in build/

backend-note:
ifeq ($(NVCC),)
	@echo "gemmd: no CUDA toolkit found (nvcc): building without the cuda backend"
endif

# said before anything is compiled, and not by a compiler that misses a header
packages:
ifneq ($(MISSING),)
	@echo "gemmd: pkg-config does not find: $(MISSING)" >&2
	@deploy/deps.sh --say build || true
	@echo "gemmd: or deploy/deps.sh build, which does that (Debian and Ubuntu)" >&2
	@exit 2
endif

# ---- what programs are linked from: an archive a part, and the kernels as a shared object too
$(BUILD)/proto.a: $(PROTO) $(WEIGHTS)
$(BUILD)/daemon.a: $(DAEMON)
$(BUILD)/libgemmkernels.a: $(KERNELS)
$(BUILD)/proto.a $(BUILD)/daemon.a $(BUILD)/libgemmkernels.a:
	$(call say,AR)
	$(Q)rm -f $@
	$(Q)$(AR) rcs $@ $^

# For programs of one build that stand together, the tests: it exports all of kernels/ and promises nothing. Its own
# calls stay inside, and the CUDA runtime in it is nobody else's.
$(BUILD)/libgemmkernels.so: $(KERNELS) kernels/libgemmkernels.map
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,libgemmkernels.so -Wl,-Bsymbolic -Wl,--exclude-libs,ALL -Wl,-z,defs \
	  -Wl,--version-script=kernels/libgemmkernels.map -o $@ $(KERNELS) $(SYSTEM_LIBS) $(CUDA_LIBS)

# gemmd executes itself, also when a newer one has taken its place on disk: it has its kernels inside
GEMMD := $(call object,daemon/main.c) $(addprefix $(BUILD)/,daemon.a libgemmkernels.a proto.a)
$(BUILD)/gemmd: $(GEMMD)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) $(CUDA_LIBS)

# ---- the client: a shared object that exports gemmd_* only, an archive whose other symbols are local
$(BUILD)/libgemmclient.so.$(SOVERSION): $(CLIENT) $(PROTO) client/libgemmclient.map
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,libgemmclient.so.$(SOVERSION) -Wl,--version-script=client/libgemmclient.map \
	  -Wl,-z,defs -o $@ $(CLIENT) $(PROTO) $(shell pkg-config --libs $(MSGPACK) jansson) $(SYSTEM_LIBS)

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

# the connection is libgemmclient's, the kernels are inside, and nobody sees them
$(BUILD)/libgemmclient-direct.so.$(SOVERSION): $(CLIENT_DIRECT) $(BUILD)/libgemmkernels.a $(BUILD)/proto.a client/libgemmclient-direct.map | $(BUILD)/libgemmclient.so
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,libgemmclient-direct.so.$(SOVERSION) -Wl,-Bsymbolic -Wl,--exclude-libs,ALL -Wl,-z,defs \
	  -Wl,--version-script=client/libgemmclient-direct.map -o $@ $(filter-out %.map,$^) -L$(BUILD) -lgemmclient $(SYSTEM_LIBS) $(CUDA_LIBS)

$(BUILD)/libgemmclient-direct.so: $(BUILD)/libgemmclient-direct.so.$(SOVERSION)
	$(Q)ln -sf $(<F) $@

CLIENT_LIBS := $(shell pkg-config --libs $(MSGPACK) jansson 2>/dev/null) $(SYSTEM_LIBS)

# the screen of top
CTL_LIBS := $(shell pkg-config --libs ncursesw 2>/dev/null)
$(BUILD)/gemmctl: $(CTL) $(BUILD)/libgemmclient.a $(BUILD)/proto.a
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(CLIENT_LIBS) $(CTL_LIBS)

$(BUILD)/gemm-bench: $(BENCH) $(addprefix $(BUILD)/,libgemmclient.a libgemmkernels.a proto.a)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(CLIENT_LIBS) $(CUDA_LIBS)

# Where sanitizers look at tiles these are loops (kernels/cpu/micro/micro_tile.h), and their sums in registers are arrays:
# where a tile reads and writes memory the address sanitizer sees, and nobody looks at these. Each place that the other
# looks at is a record to be relocated as a program starts: of tiles there would be 300,000. Debuggers see the lines of
# tiles, but not their variables: to follow these takes a third of compiling them.
KERNEL_OPTIMIZATION ?= $(if $(SANITIZE),-O1,-O3)
# Nobody looks at exceptions of floats, and with them gcc rounds and quantizes one element at a time but for AVX-512.
NO_TRAPS := -fno-trapping-math
TILE_CHECKS := $(if $(findstring undefined,$(SANITIZE)),-fno-sanitize=undefined) $(if $(findstring address,$(SANITIZE)),--param asan-stack=0)
# Tests compute little themselves and are not optimized, but for these; under sanitizers but for the first, which take
# ten times as long there.
COMPUTING := tests/unit/proto/weights/% $(if $(SANITIZE),,tests/unit/proto/shm/% tests/unit/kernels/%)

# What goes into libgemmkernels.so is visible there; version scripts and objcopy hide it in what others link with.
visible = $(if $(filter kernels/% proto/%,$(1)),-fvisibility=default -fno-semantic-interposition)
unrolled = $(if $(filter kernels/cpu/% proto/weights/matrix.c proto/weights/quantize.c proto/weights/safetensors.c,$(1)),$(KERNEL_OPTIMIZATION)) \
  $(if $(filter kernels/cpu/micro/%,$(1)),$(NO_TRAPS) $(TILE_CHECKS) $(if $(filter -g,$(CFLAGS)),-g1)) \
  $(if $(filter tests/unit/% tests/end_to_end/%,$(filter-out $(COMPUTING),$(1))),-U_FORTIFY_SOURCE -O0)
sees_cuda = $(if $(findstring /cuda/,$(1))$(findstring test_cuda,$(1))$(findstring _places,$(1))$(filter tests/bench/%,$(1)),$(CUDA_CFLAGS))

$(BUILD)/obj/%.c.o: %.c Makefile $(if $(MISSING),| packages)
	@mkdir -p $(@D)
	$(call say,CC)
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) $(call visible,$<) $(call unrolled,$<) $(call sees_cuda,$<) -MMD -MP -c -o $@ $<

# Who sees oneDNN's header is compiled anew where it comes or goes: packages' files are older than what was compiled.
DNNL := $(BUILD)/$(if $(wildcard $(addprefix /usr/include/,dnnl.h oneapi/dnnl/dnnl.h)),with,without)-dnnl
$(DNNL):
	@mkdir -p $(@D)
	$(Q)rm -f $(BUILD)/with*-dnnl && touch $@
$(call object,$(shell grep -rlE 'onednn\.h"' --include='*.c' kernels tests/gemm-bench)): $(DNNL)

# what tunings are kept for: they are found anew where the source of a kernel changes
KERNEL_SOURCES := $(foreach kind,c h cu cuh,$(call below,kernels,$(kind)))
$(call object,kernels/identity.c): BASE_CFLAGS += -DKERNELS_HASH='"$(shell cat $(KERNEL_SOURCES) | sha256sum | cut -c1-12)"'
$(call object,kernels/identity.c): $(KERNEL_SOURCES)

# carried as text, for the compiler at run time
$(call object,kernels/cuda/families/tile/source.c): $(addprefix kernels/cuda/families/,tile/kernel.cuh tile/codes.cuh \
  tile/params.h sm90/int2/layout.h sm90/int2/dense.cuh sm90/int2/a8_layout.h)

build/obj/%.cu.o: %.cu Makefile $(if $(MISSING),| packages)
	@mkdir -p $(@D)
	$(call say,NVCC)
	$(Q)$(NVCC) $(NVCC_FLAGS) $(NVCC_COMPRESS) $(NVCC_ARCH) -MMD -MP -c -o $@ $<

include client/adapters.mk tests/tests.mk tests/stress.mk deploy/package.mk

clean: ## remove build/
	rm -rf build

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(filter-out %.d,$(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## /\1\t/' | expand -t 12

-include $(shell find build $(BUILD) -path '*/deb' -prune -o -type f -name '*.d' -print 2>/dev/null)
.PHONY: all packages backend-note clean help
