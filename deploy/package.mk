# ---- the protocol, for generators of clients
$(BUILD)/protocol: $(BUILD)/obj/deploy/protocol/main.c.o $(BUILD)/proto.a
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(SYSTEM_LIBS)

$(BUILD)/protocol.json: $(BUILD)/protocol
	$(Q)$< >$@.new && mv $@.new $@

# ---- one tar for hosts that have none of the packages; with its tests, for machines with a GPU
BUNDLE := $(BUILD)/gemmd-$(VERSION)-x86_64
BUNDLE_PROGRAMS := $(addprefix $(BUNDLE)/bin/,gemmd gemmctl gemm-bench gemm-demo)
BUNDLE_EXAMPLE := $(BUNDLE)/bin/direct-layer $(if $(NVCC),$(BUNDLE)/bin/gemm-eager)
BUNDLE_LIBRARIES := $(addprefix $(BUNDLE)/lib/,libgemmclient.so.$(SOVERSION) libgemmclient.a)
BUNDLE_TESTS := $(patsubst $(BUILD)/%,$(BUNDLE)/%,$(CONFORMANCE) $(END_TO_END))
BUNDLE_TEST_LIBS := -Wl,-rpath,'$$ORIGIN/../../lib' -lcmocka $(STATIC_LIBS)

$(BUNDLE)/bin/gemmd: $(GEMMD)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(STATIC_LIBS) $(CUDA_LIBS)

$(BUNDLE)/lib/libgemmclient.so.$(SOVERSION): $(CLIENT) $(PROTO) client/libgemmclient.map
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,libgemmclient.so.$(SOVERSION) -Wl,--version-script=client/libgemmclient.map \
	  -Wl,-z,defs -Wl,-rpath,'$$ORIGIN' -o $@ $(CLIENT) $(PROTO) $(MSGPACK_STATIC) -ljansson $(SYSTEM_LIBS)

$(BUNDLE)/lib/libgemmclient.a: $(CLIENT) $(PROTO)
	@mkdir -p $(@D)
	$(call say,AR)
	$(Q)rm -f $@
	$(Q)$(CC) -r -nostdlib -o $(BUNDLE)/gemmclient.o $^ $(MSGPACK_STATIC) -l:libjansson.a
	$(Q)objcopy --wildcard --keep-global-symbol='gemmd_*' $(BUNDLE)/gemmclient.o
	$(Q)$(AR) rcs $@ $(BUNDLE)/gemmclient.o
	$(Q)rm $(BUNDLE)/gemmclient.o

$(BUNDLE)/bin/gemmctl: $(CTL) $(BUILD)/libgemmclient.a $(BUILD)/proto.a
$(BUNDLE)/bin/gemm-bench: $(BENCH) $(addprefix $(BUILD)/,libgemmclient.a libgemmkernels.so proto.a)
$(BUNDLE)/bin/gemm-demo: $(DEMO) $(BUILD)/libgemmclient.a
$(filter-out %/gemmd,$(BUNDLE_PROGRAMS)):
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(STATIC_LIBS) \
	  $(if $(findstring bench,$@),-Wl$(comma)-rpath$(comma)'$$ORIGIN/../lib' $(CUDA_LIBS)) \
	  $(if $(findstring ctl,$@),-l:libncursesw.a -l:libtinfo.a)

$(patsubst $(BUILD)/%,$(BUNDLE)/%,$(CONFORMANCE)): $(BUNDLE)/tests/%: $(BUILD)/obj/tests/%.c.o $(addprefix $(BUILD)/,tests.a libgemmkernels.so proto.a)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(BUNDLE_TEST_LIBS)

$(patsubst $(BUILD)/%,$(BUNDLE)/%,$(DIRECT)): $(BUNDLE)/tests/%: $(BUILD)/obj/tests/%.c.o $(addprefix $(BUILD)/,tests.a proto.a) $(DIRECT_LIBRARIES)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -Wl,-rpath,'$$ORIGIN/../../../lib' $(BUNDLE_TEST_LIBS)

$(BUNDLE)/bin/direct-layer: client/direct/examples/layer.c $(DIRECT_LIBRARIES)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(CFLAGS) $(LDFLAGS) -D_GNU_SOURCE -Iclient -Wl,-rpath,'$$ORIGIN/../lib' -o $@ $< $(DIRECT_LIBRARIES) -ldl -lm

$(BUNDLE)/bin/gemm-eager: $(wildcard tests/eager/*.c tests/eager/*.h) client/gemmclient_direct.h $(DIRECT_LIBRARIES)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) -std=c17 -Wall -Wextra -Werror $(CFLAGS) $(LDFLAGS) -D_GNU_SOURCE -Iclient $(CUDA_CFLAGS) \
	  -Wl,-rpath,'$$ORIGIN/../lib' -o $@ $(filter %.c,$^) $(DIRECT_LIBRARIES) -ldl

$(patsubst $(BUILD)/%,$(BUNDLE)/%,$(filter-out $(DIRECT),$(END_TO_END))): $(BUNDLE)/tests/%: $(BUILD)/obj/tests/%.c.o $(addprefix $(BUILD)/,tests.a client.a proto.a)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ $(BUNDLE_TEST_LIBS)

$(addprefix $(BUNDLE)/tests/,isolation shares): $(BUNDLE)/tests/%: $(BUILD)/obj/tests/isolation/%.c.o $(addprefix $(BUILD)/,tests.a client.a proto.a)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -Wl,-rpath,'$$ORIGIN/../lib' -lcmocka $(STATIC_LIBS)

$(BUNDLE)/tests/snapshot: $(call object,$(wildcard tests/snapshot/*.c)) $(addprefix $(BUILD)/,libgemmkernels.so proto.a)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -Wl,-rpath,'$$ORIGIN/../lib' $(SYSTEM_LIBS)

$(BUNDLE)/tests/turns: $(BUILD)/obj/tests/isolation/turns.c.o $(addprefix $(BUILD)/,tests.a client.a libgemmkernels.so proto.a)
	@mkdir -p $(@D)
	$(call say,LINK)
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -Wl,-rpath,'$$ORIGIN/../lib' -lcmocka $(STATIC_LIBS)

bundle: $(BUNDLE_PROGRAMS) $(BUNDLE_EXAMPLE) $(BUNDLE_LIBRARIES) $(BUNDLE_TESTS) $(addprefix $(BUNDLE)/tests/,isolation shares turns snapshot) $(addprefix $(BUILD)/,libgemmclient-cuda.so libgemmclient-direct.so) ## one tar that runs on another x86-64 Linux with nothing installed
	@mkdir -p $(BUNDLE)/lib $(BUNDLE)/include $(BUNDLE)/etc
	cp -L $(addprefix $(BUILD)/,libgemmclient-cuda.so.$(SOVERSION) libgemmclient-direct.so.$(SOVERSION) libgemmkernels.so) $(BUNDLE)/lib/
	ln -sf libgemmclient.so.$(SOVERSION) $(BUNDLE)/lib/libgemmclient.so
	ln -sf libgemmclient-cuda.so.$(SOVERSION) $(BUNDLE)/lib/libgemmclient-cuda.so
	ln -sf libgemmclient-direct.so.$(SOVERSION) $(BUNDLE)/lib/libgemmclient-direct.so
	cp $(PUBLIC_HEADERS) $(BUNDLE)/include/
	cp deploy/gemmd.conf $(BUNDLE)/etc/
	cp README.md LICENSE $(BUNDLE)/
	cp tests/gpu.sh tests/gpu_sanitizers.sh tests/run.sh tests/demo/demo.sh $(BUNDLE)/tests/
	@# Debian's archive of jansson cannot go into a shared object
	cp -L $(foreach library,libcmocka.so.0 libjansson.so.4,$(shell $(CC) -print-file-name=$(library))) $(BUNDLE)/lib/
	find $(BUNDLE)/bin $(BUNDLE)/lib $(BUNDLE)/tests -type f ! -name '*.a' -exec sh -c 'for file; do case $$(head -c 4 "$$file" | od -An -c) in *E*L*F*) strip --strip-debug "$$file" ;; esac; done' sh {} +
	tar -C $(BUILD) -czf $(BUNDLE).tar.gz $(notdir $(BUNDLE))
	@ls -lh $(BUNDLE).tar.gz

PUBLIC_HEADERS := $(addprefix client/,gemmclient.h gemmclient_cuda.h gemmclient_direct.h)
INSTALL_BIN := $(DESTDIR)$(PREFIX)/bin
INSTALL_LIB := $(DESTDIR)$(LIBDIR)
INSTALL_MAN := $(DESTDIR)$(PREFIX)/share/man
install: all ## into $(DESTDIR)$(PREFIX); the units into $(DESTDIR)$(PREFIX)/lib/systemd, gemmd.conf into $(DESTDIR)/etc/gemmd
	install -Dm755 -t $(INSTALL_BIN) $(PROGRAMS)
	install -Dm755 -t $(INSTALL_LIB) $(patsubst %,$(BUILD)/%.so.$(SOVERSION),libgemmclient libgemmclient-cuda libgemmclient-direct)
	ln -sf libgemmclient.so.$(SOVERSION) $(INSTALL_LIB)/libgemmclient.so
	ln -sf libgemmclient-cuda.so.$(SOVERSION) $(INSTALL_LIB)/libgemmclient-cuda.so
	ln -sf libgemmclient-direct.so.$(SOVERSION) $(INSTALL_LIB)/libgemmclient-direct.so
	install -Dm644 -t $(INSTALL_LIB) $(BUILD)/libgemmclient.a
	install -Dm644 -t $(DESTDIR)$(PREFIX)/include $(PUBLIC_HEADERS)
	install -d $(INSTALL_LIB)/pkgconfig $(DESTDIR)$(PREFIX)/lib/systemd/system
	sed -e 's|@PREFIX@|$(PREFIX)|g' -e 's|@LIBDIR@|$(LIBDIR)|g' -e 's|@VERSION@|$(VERSION)|g' \
	  -e 's|@LIBS_PRIVATE@|$(shell pkg-config --libs $(MSGPACK) jansson) $(SYSTEM_LIBS)|g' deploy/gemmclient.pc.in \
	  >$(INSTALL_LIB)/pkgconfig/gemmclient.pc
	sed -e 's|/usr/bin/|$(PREFIX)/bin/|g' deploy/gemmd.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/gemmd.service
	sed -e 's|/usr/bin/|$(PREFIX)/bin/|g' deploy/gemmd-metrics.service >$(DESTDIR)$(PREFIX)/lib/systemd/system/gemmd-metrics.service
	install -Dm644 -t $(DESTDIR)$(PREFIX)/lib/systemd/system deploy/gemmd.socket
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/gemmd deploy/gemmd.rules.yml deploy/gemmd.dashboard.json $(BUILD)/protocol.json
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

# Python's package with the libraries, and a gemmd for programs that start their own, inside
WHEEL := $(BUILD)/wheel
WHEEL_LIBRARIES := $(patsubst %,$(BUILD)/lib%.so.$(SOVERSION),gemmclient-cuda gemmclient-direct)
wheel: $(BUNDLE)/bin/gemmd $(BUNDLE)/bin/gemmctl $(BUNDLE)/lib/libgemmclient.so.$(SOVERSION) $(WHEEL_LIBRARIES) ## a Python wheel that needs nothing installed: build/wheel
	@deploy/deps.sh wheel
	@cp -L $(WHEEL_LIBRARIES) $(shell $(CC) -print-file-name=libjansson.so.4) $(BUNDLE)/lib/
	@deploy/wheel.sh $(BUNDLE)/bin $(BUNDLE)/lib $(WHEEL)
	@ls -lh $(WHEEL)/*.whl

# debian/ stands below deploy/, and the packages are built from a copy of the sources that has it where it belongs
DEB := $(BUILD)/deb
deb: ## Debian packages: gemmd, libgemmclient0, libgemmclient-cuda0, libgemmclient-direct0 and libgemmclient-dev, in build/deb
	@deploy/deps.sh build deb
	rm -rf $(DEB)
	mkdir -p $(DEB)/gemmd-$(VERSION)
	tar -c --exclude=./build --exclude=./.git --exclude=./.cache . | tar -x -C $(DEB)/gemmd-$(VERSION)
	mv $(DEB)/gemmd-$(VERSION)/deploy/debian $(DEB)/gemmd-$(VERSION)/debian
	@# compiled by the same command there: make takes those that are newer than their sources
	mkdir -p build/obj && find build/obj -name '*.cu.[od]' -exec cp --parents -pt $(DEB)/gemmd-$(VERSION) {} +
	cd $(DEB)/gemmd-$(VERSION) && dpkg-buildpackage --build=binary --no-sign
	rm -rf $(DEB)/gemmd-$(VERSION)
	lintian --allow-root --fail-on error,warning $(DEB)/*.changes
	@ls -l $(DEB)/*.deb

image: ## an OCI image of the Debian package: build/image (takes root)
	@deploy/deps.sh build deb image
	@$(MAKE) --no-print-directory deb
	@deploy/image.sh $(VERSION) $(BUILD)/image $(BUILD)/deb/gemmd_*.deb
	@ls -d $(BUILD)/image

.PHONY: bundle image wheel install uninstall deb
