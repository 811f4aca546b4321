# ---- adapters to inference servers, each against a tree of theirs that the caller has
# A tree of llama.cpp, or of ggml alone, built in its build/.
GGML_SOURCES := $(wildcard client/ggml/*.c)
GGML_LIBRARIES := $(addprefix $(BUILD)/,libgemmclient-direct.so libgemmclient.so)
GGML_HEAD = $(firstword $(wildcard $(GGML)/ggml/src/ggml-backend-impl.h $(GGML)/src/ggml-backend-impl.h))
GGML_BASE = $(firstword $(wildcard $(GGML)/build/bin/libggml-base.so $(GGML)/build/src/libggml-base.so))
GGML_INCLUDES = -isystem $(dir $(GGML_HEAD))../include -isystem $(dir $(GGML_HEAD))
$(BUILD)/libggml-gemmd.so: $(GGML_SOURCES) client/ggml/gemmd_ggml.h client/gemmclient.h client/gemmclient_direct.h $(GGML_LIBRARIES)
	$(call say,LINK)
	$(Q)$(CC) $(BASE_CFLAGS) -fopenmp $(CFLAGS) $(LDFLAGS) -shared -Iclient $(GGML_INCLUDES) -DGGML_BACKEND_DL \
	  -DGGML_SHARED -DGGML_BACKEND_SHARED -DGGML_BACKEND_BUILD -Wl,-z,defs -Wl,-rpath,'$$ORIGIN' -o $@ $(GGML_SOURCES) \
	  -L$(BUILD) -lgemmclient-direct -lgemmclient $(CLIENT_LIBS) -lb2 -lm $(GGML_BASE)

ggml: $(GGML_LIBRARIES) ## a backend for ggml: build/libggml-gemmd.so (GGML=path of a tree of llama.cpp or ggml that is built in its build/)
	@test -n "$(GGML_HEAD)" && test -n "$(GGML_BASE)" || { echo "make ggml GGML=path of a built tree of llama.cpp or ggml" >&2; exit 2; }
	@$(MAKE) --no-print-directory GGML=$(abspath $(GGML)) $(BUILD)/libggml-gemmd.so

test-ggml: all ## the backend under llama.cpp: a real model, ggml's own tests (GGML=path of a tree of llama.cpp that is built)
	@$(MAKE) --no-print-directory ggml
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) $(LDFLAGS) $(GGML_INCLUDES) -o $(BUILD)/ggml-test-model tests/ggml/test_model.c \
	  -L$(dir $(GGML_BASE)) -lggml -lggml-base -lm
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) $(LDFLAGS) $(GGML_INCLUDES) -o $(BUILD)/ggml-make-model tests/ggml/make_model.c \
	  $(GGML_BASE) -lm
	$(Q)$(CC) $(BASE_CFLAGS) $(CFLAGS) $(LDFLAGS) $(GGML_INCLUDES) -isystem $(GGML)/include -o $(BUILD)/ggml-generate tests/ggml/generate.c \
	  -L$(dir $(GGML_BASE)) -lllama -lggml -lggml-base -Wl,-rpath-link,$(dir $(GGML_BASE))
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

.PHONY: ggml test-ggml triton test-triton
