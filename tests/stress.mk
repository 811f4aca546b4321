# Fuzzing, chaos, faults and isolation: minutes of them, each with what is built for it alone.

# ---- fuzzing: clang's libFuzzer; every object once more, with its instruments
FUZZ_CC ?= clang
FUZZ_FLAGS := -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer -g1 -O1
FUZZ := $(patsubst tests/fuzz/%.c,$(BUILD)/fuzz/%,$(wildcard tests/fuzz/fuzz_*.c))
fuzz_object = $(patsubst %,$(BUILD)/fuzz/obj/%.o,$(1))
FUZZ_DAEMON := $(call fuzz_object,$(PROTO_SOURCES) daemon/config.c daemon/list.c daemon/log.c daemon/memfd.c $(addprefix daemon/,bands.c hash.c pages.c room.c) $(wildcard daemon/tree*.c) $(wildcard daemon/loader/*.c proto/weights/*.c proto/weights/*/*.c) \
  $(addprefix daemon/supervisor/weights/,catalog.c catalog_image.c) $(addprefix daemon/worker/serve/,handles.c plans.c) \
  daemon/transport.c daemon/worker/tune/record/tune_db.c kernels/variant.c client/model/index.c)
FUZZ_CLIENT := $(call fuzz_object,$(PROTO_SOURCES) $(CLIENT_SOURCES))

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

# ---- clients that die, and faults under load
FAULTS_SUPPORT := $(call object,tests/chaos/pauses.c tests/chaos/vast.c) $(BUILD)/tests.a
$(addprefix $(BUILD)/,chaos faults held starved): $(BUILD)/%: $(BUILD)/obj/tests/chaos/%.c.o $(FAULTS_SUPPORT) $(BUILD)/client.a $(BUILD)/proto.a
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(TEST_LIBS)

# ---- users that want too much, beside one that does not
$(addprefix $(BUILD)/,isolation shares): $(BUILD)/%: $(BUILD)/obj/tests/isolation/%.c.o $(BUILD)/tests.a $(BUILD)/client.a $(BUILD)/proto.a
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(TEST_LIBS)

# how the kernels themselves cut the same products, without a daemon
$(BUILD)/turns: $(BUILD)/obj/tests/isolation/turns.c.o $(addprefix $(BUILD)/,tests.a client.a libgemmkernels.so proto.a)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -Wl,-rpath,'$$ORIGIN' -o $@ $^ $(TEST_LIBS)

bench-turns: ## into how many turns hostile products go, and how long each takes (ARGUMENTS="first step case_ms")
	@deploy/deps.sh build test
	@$(MAKE) --no-print-directory run-bench-turns

run-bench-turns: all $(BUILD)/turns
	@$(BUILD)/turns $(ARGUMENTS)

bench-isolation: ## hostile products beside a good client, and users' shares (ARGUMENTS="first step patience_ms seconds clients rounds tune")
	@deploy/deps.sh build test
	@$(MAKE) --no-print-directory run-bench-isolation

run-bench-isolation: all $(BUILD)/isolation $(BUILD)/shares
	@GEMMD_BUILD=$(BUILD) $(BUILD)/shares
	@GEMMD_BUILD=$(BUILD) $(BUILD)/isolation $(or $(ARGUMENTS),0 1 300)

# the real libraries with kernels that fail when a test says so
$(BUILD)/libcublaslt-faulty.so: tests/chaos/faulty_cublaslt.cu tests/chaos/faulty.h
	@mkdir -p $(@D)
	$(call say,NVCC)
	$(Q)$(NVCC) -O2 -std=c++17 -shared -Xcompiler -fPIC,-fvisibility=hidden $(NVCC_ARCH) -o $@ $< -Xlinker --no-as-needed -lcublasLt -ldl

$(BUILD)/libnvrtc-faulty.so: tests/chaos/faulty_nvrtc.c tests/chaos/faulty.h
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(BASE_CFLAGS) $(CUDA_CFLAGS) $(CFLAGS) -shared -o $@ $< -L$(CUDA_HOME)/lib64 -Wl,--no-as-needed -lnvrtc -ldl

chaos: ## dozens of clients that die, stop, scribble and lie, and some that check, CHAOS_S=600 seconds, CHAOS_SEED=1, a worker killed every CHAOS_KILL_MS=4000
	@deploy/deps.sh build test
	@$(MAKE) --no-print-directory run-chaos

faults: ## one fault after the other under load, and the pauses that clients saw; with FAULTS_GB=0.06 of weights
	@deploy/deps.sh build test
	@$(MAKE) --no-print-directory run-faults

run-faults: all $(addprefix $(BUILD)/,faults held starved) $(if $(NVCC),$(addprefix $(BUILD)/,libcublaslt-faulty.so libnvrtc-faulty.so))
	@GEMMD_BUILD=$(BUILD) $(BUILD)/faults
	@GEMMD_BUILD=$(BUILD) $(BUILD)/held $(or $(FAULTS_GB),0.06)
	@GEMMD_BUILD=$(BUILD) $(BUILD)/starved

run-chaos: all $(BUILD)/chaos
	@TEST_LIMIT_S=$$(($${CHAOS_S:-600} + 120)) GEMMD_BUILD=$(BUILD) tests/chaos/run.sh $(BUILD)/chaos

fuzz: ## all fuzz targets over their corpus, FUZZ_S=60 seconds together
	@deploy/deps.sh build fuzz
	@$(MAKE) --no-print-directory run-fuzz

run-fuzz: $(FUZZ)
	@GEMMD_BUILD=$(BUILD) tests/fuzz/run.sh

.PHONY: chaos run-chaos faults run-faults bench-isolation run-bench-isolation bench-turns run-bench-turns fuzz run-fuzz
