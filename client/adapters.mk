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

.PHONY: ggml test-ggml triton test-triton
