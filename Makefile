# gemmd: `make help` lists the targets.

VERSION := 0.1.0
CC ?= cc
PREFIX ?= /usr/local
DESTDIR ?=

comma := ,
BUILD := build$(if $(SANITIZE),/sanitize-$(subst $(comma),-,$(SANITIZE)))

MSGPACK := $(firstword $(foreach p,msgpack-c msgpack,$(shell pkg-config --exists $(p) 2>/dev/null && echo $(p))))
PACKAGES := libuv $(MSGPACK) inih jansson libb2
CFLAGS ?= -O2 -g
BASE_CFLAGS := -std=c17 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
  -fPIC -fvisibility=hidden -fstack-protector-strong -I. -DGEMMD_VERSION='"$(VERSION)"' $(shell pkg-config --cflags $(PACKAGES))
LIBS := $(shell pkg-config --libs $(PACKAGES)) -lpthread -lm -ldl
ifneq ($(SANITIZE),)
BASE_CFLAGS += -fsanitize=$(SANITIZE) -fno-sanitize-recover=all -fno-omit-frame-pointer
LDFLAGS += -fsanitize=$(SANITIZE)
endif

# ---- the cuda backend is built where the toolkit is
NVCC ?= $(firstword $(wildcard /usr/local/cuda/bin/nvcc) $(shell command -v nvcc 2>/dev/null))
ifneq ($(NVCC),)
CUDA_HOME ?= $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
BASE_CFLAGS += -DGEMMD_CUDA
CUDA_CFLAGS := -I$(CUDA_HOME)/include
NVCC_FLAGS := -O3 -std=c++17 --threads 2 -Xcompiler -fPIC,-fvisibility=hidden -I. \
  -gencode arch=compute_80,code=sm_80 -gencode arch=compute_89,code=sm_89 -gencode arch=compute_90a,code=sm_90a
CUDA_LIBS := -L$(CUDA_HOME)/lib64 -lcudart_static -lrt -lstdc++
endif

objects = $(patsubst %,$(BUILD)/obj/%.o,$(1))
PROTO := $(call objects,$(wildcard proto/*.c))
KERNELS := $(call objects,$(wildcard kernels/*.c kernels/cpu/*.c))
ifneq ($(NVCC),)
KERNELS += $(call objects,$(wildcard kernels/cuda/*.c kernels/cuda/*.cu))
endif
DAEMON := $(call objects,$(filter-out daemon/main.c,$(wildcard daemon/*.c daemon/*/*.c)))
CLIENT := $(call objects,$(wildcard client/*.c))
CTL := $(call objects,$(wildcard client/ctl/*.c))
BENCH := $(call objects,$(wildcard client/bench/*.c))

all: $(addprefix $(BUILD)/,gemmd gemmctl gemm-bench libgemmclient.so libgemmclient.a)

$(BUILD)/gemmd: $(call objects,daemon/main.c) $(DAEMON) $(KERNELS) $(PROTO)
	$(CC) $(LDFLAGS) -o $@ $^ $(LIBS) $(CUDA_LIBS)

$(BUILD)/obj/%.c.o: %.c
	@mkdir -p $(@D)
	$(CC) $(BASE_CFLAGS) $(CFLAGS) $(if $(findstring kernels/cuda,$<),$(CUDA_CFLAGS)) -MMD -MP -c -o $@ $<

$(BUILD)/obj/%.cu.o: %.cu
	@mkdir -p $(@D)
	$(NVCC) $(NVCC_FLAGS) -MMD -MP -c -o $@ $<

clean:
	rm -rf build

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
.PHONY: all clean
