# SPDX-License-Identifier: Apache-2.0
#
# make                 builds multichase, multiload, pingpong and fairness here
# make aarch64         the same for aarch64 into build/aarch64, by its cross compiler
# make check-deps      installs what the tests need (as root on Debian), or lists it
# make check           runs the tests; make check-all the long ones as well
# make bench           measures against the best there is: bench/README.md
# make proof           shows what the write-back does, on emulated machines
# make lint            formatting and static analysis, for developers
# make install         to $(DESTDIR)$(PREFIX); make uninstall removes it
# make dist            the last commit's sources, build/multichase-VERSION.tar.gz
#
# CC, CFLAGS, CPPFLAGS, LDFLAGS and LDLIBS are the user's. ARCH=NAME alone
# chooses the cross compiler of that architecture; BUILD=DIR and BIN=DIR keep what
# it builds apart. WERROR=1 is for developers.

VERSION = 1.0
PREFIX = /usr/local

PROGRAMS = multichase multiload pingpong fairness
COMMON = crew environment json machine options program report signals
SHARED = arena branch_chase chase memload permutation plan run team
# What holds the loops that are timed.
TIMED = chase memload pingpong fairness

ifdef ARCH
ifeq ($(origin CC),default)
ifneq ($(ARCH),$(shell uname -m))
CC = $(patsubst i386,i686,$(patsubst arm64,aarch64,$(ARCH)))-linux-gnu-gcc
endif
endif
endif

CFLAGS = -g -O2
# Static programs can be copied anywhere, into an initramfs too.
LDFLAGS = $(STATIC)
LDLIBS = -lm

# Objects go to BUILD, programs to BIN.
BUILD = build/native
BIN = .

# What the sources need, whatever CFLAGS are.
STANDARD = gnu11
# (Files of 2 GiB and more on 32-bit systems too.)
NEEDED = -std=$(STANDARD) -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 \
	-DVERSION='"$(VERSION)"' -pthread -I$(BUILD) -I. -MMD -MP
# One compiler makes all of a program: how others pass things is no concern.
WARNINGS = -Wall -Wextra -Wno-psabi -Wshadow -Wstrict-prototypes -Wmissing-prototypes \
	-Wpointer-arith $(if $(filter-out 0,$(WERROR)),-Werror)
# A tight loop that straddles a line of the instruction cache is slower.
KERNEL_FLAGS = -falign-functions=64 -falign-loops=64
COMPILE = $(CC) $(NEEDED) $(WARNINGS) $(CPPFLAGS) $(CFLAGS)
LINK = $(CC) -pthread $(CFLAGS) $(LDFLAGS)

all: $(PROGRAMS:%=$(BIN)/%)

# Is there a static libc for this compiler? Asked only where it matters.
ifneq ($(filter-out clean lint check-deps uninstall dist,$(or $(MAKECMDGOALS),all)),)
ifeq ($(shell command -v $(firstword $(CC))),)
$(error there is no compiler $(CC))
endif
ifeq ($(origin LDFLAGS),file)
STATIC := $(shell mkdir -p $(BUILD); echo 'int main(void) { return 0; }' | \
	$(CC) -static -x c -o $(BUILD)/static_libc - 2>/dev/null && echo -static)
ifeq ($(STATIC),)
$(info no static libc for $(CC): linking dynamically)
endif
endif
endif

$(BUILD)/%.o: %.c $(BUILD)/flags
	$(COMPILE) $(TARGET_FLAGS) -c -o $@ $<

$(TIMED:%=$(BUILD)/%.o): TARGET_FLAGS = $(KERNEL_FLAGS)
$(BUILD)/chase.o: $(BUILD)/expand.h

$(BUILD)/expand.h: gen_expand
	@mkdir -p $(BUILD)
	sh ./gen_expand 200 > $@

# Changes when the compiler or its flags do, so that all is built anew.
$(BUILD)/flags: FORCE
	@mkdir -p $(BUILD)
	@echo '$(subst ','\'',$(COMPILE) $(LINK))' | cmp -s - $@ || \
		echo '$(subst ','\'',$(COMPILE) $(LINK))' > $@

$(BIN)/multichase $(BIN)/multiload: $(SHARED:%=$(BUILD)/%.o)
$(PROGRAMS:%=$(BIN)/%): $(BIN)/%: $(BUILD)/%.o $(COMMON:%=$(BUILD)/%.o)
	@mkdir -p $(BIN)
	$(LINK) -o $@ $^ $(LDLIBS)

-include $(wildcard $(BUILD)/*.d)

# The aarch64 programs, for the tests under emulation.
aarch64:
	$(MAKE) CC=aarch64-linux-gnu-gcc BUILD=build/aarch64 BIN=build/aarch64

check-deps:
	sh tests/check_deps

# A unit test tests/test_NAME.c is linked with all that is not a program, and so
# is a target of a fuzzer.
UNIT_TESTS = $(patsubst tests/%.c,$(BUILD)/%,$(wildcard tests/test_*.c))

$(BUILD)/%: tests/%.c $(COMMON:%=$(BUILD)/%.o) $(SHARED:%=$(BUILD)/%.o)
	$(COMPILE) -Itests $(LDFLAGS) -o $@ $< $(filter %.o,$^) $(LDLIBS)

# Without this compiler, tests of the aarch64 programs are skipped, and say so.
CROSS = $(if $(shell command -v aarch64-linux-gnu-gcc),aarch64)

TESTS = $(UNIT_TESTS) $(wildcard tests/*.t)
LONG_TESTS = $(patsubst tests/%.c,$(BUILD)/%,\
	$(shell grep -l CHECK_ALL tests/test_*.c tests/*.t))

check: all $(CROSS) $(UNIT_TESTS)
	tests/run $(TESTS)

# The same tests in full (after check those that have more then), and deliberate
# breaks that they must catch.
check-all: all $(CROSS) $(UNIT_TESTS)
	CHECK_ALL=1 tests/run \
		$(if $(filter check,$(MAKECMDGOALS)),$(LONG_TESTS),$(TESTS)) \
		tests/mutants

# The evidence for the write-back: traces, a booted kernel, a model of a cache.
proof: all aarch64
	tests/proof.sh

# The chases as bare loops, to measure them against.
$(BUILD)/bare_loops: bench/bare_loops.c $(BUILD)/expand.h \
		$(BUILD)/branch_chase.o $(BUILD)/permutation.o
	$(COMPILE) $(KERNEL_FLAGS) $(LDFLAGS) -o $@ $(filter %.c %.o,$^) $(LDLIBS)

$(BUILD)/fresh_memset: bench/fresh_memset.c
	$(COMPILE) $(LDFLAGS) -o $@ $<

bench: all
	bench/run

SHELL_SCRIPTS = $(shell grep -d skip -lE '^\#!/(bin/sh|usr/bin/env bash)' \
	$(wildcard * scripts/* tests/* .ci/* patches/* bench/*))

ANALYZER = gcc -fanalyzer -Werror -O1 -MF /dev/null
# What the compiler would define, for the architectures with code of their own.
ANALYZED = -D__x86_64__ -D__aarch64__
# Fields are written through char pointers, as options and buffers of double.
CPPCHECK = -q -j2 --error-exitcode=1 --enable=warning,performance,portability \
	--inline-suppr --suppress=invalidPointerCast \
	-D__linux__ -D__GNUC__=12 -D_GNU_SOURCE -DVERSION='"$(VERSION)"' -I. -I$(BUILD)

lint: $(BUILD)/expand.h
	clang-format --dry-run -Werror $(wildcard *.[ch] tests/*.[ch] bench/*.[ch])
	shellcheck -x $(SHELL_SCRIPTS) completions/*.bash
	clang-tidy --quiet $(wildcard *.c) -- $(NEEDED)
	for source in *.c; do \
		$(ANALYZER) $(NEEDED) $(WARNINGS) -S -o /dev/null $$source || exit; \
	done
	for macros in $(ANALYZED); do \
		cppcheck $(CPPCHECK) $$macros $(wildcard *.c) || exit; \
	done

# Where what is installed goes. run_multiload.sh finds its parts from BIN_DIR.
SHARE = $(DESTDIR)$(PREFIX)/share
BIN_DIR = $(DESTDIR)$(PREFIX)/bin
PARTS_DIR = $(SHARE)/multichase
MAN_DIR = $(SHARE)/man/man1
BASH_DIR = $(SHARE)/bash-completion/completions
ZSH_DIR = $(SHARE)/zsh/site-functions
COMMANDS = $(PROGRAMS) run_multiload.sh
PARTS = $(wildcard scripts/*)

# What was built, by whatever compiler, is installed; what was not is built.
install: $(filter-out $(wildcard $(PROGRAMS:%=$(BIN)/%)),$(PROGRAMS:%=$(BIN)/%))
	install -d "$(BIN_DIR)" "$(PARTS_DIR)" "$(MAN_DIR)" "$(BASH_DIR)" "$(ZSH_DIR)"
	install $(PROGRAMS:%=$(BIN)/%) run_multiload.sh "$(BIN_DIR)"
	install $(filter-out %.sh,$(PARTS)) "$(PARTS_DIR)"
	install -m 644 $(filter %.sh,$(PARTS)) "$(PARTS_DIR)"
	install -m 644 $(COMMANDS:%=man/%.1) "$(MAN_DIR)"
	install -m 644 completions/multichase.bash "$(BASH_DIR)"/multichase
	for name in $(filter-out multichase,$(COMMANDS)); do \
		ln -sf multichase "$(BASH_DIR)"/$$name || exit; \
	done
	install -m 644 completions/_multichase "$(ZSH_DIR)"

uninstall:
	rm -f $(PARTS:scripts/%="$(PARTS_DIR)"/%)
	! [ -d "$(PARTS_DIR)" ] || rmdir "$(PARTS_DIR)"
	rm -f $(COMMANDS:%="$(BIN_DIR)"/%) $(COMMANDS:%="$(MAN_DIR)"/%.1) \
		$(COMMANDS:%="$(BASH_DIR)"/%) "$(ZSH_DIR)"/_multichase

# The sources of the last commit; the same bytes whoever makes it.
DIST = multichase-$(VERSION)
dist:
	@mkdir -p build
	git -c tar.umask=0022 archive --prefix=$(DIST)/ -o build/$(DIST).tar HEAD
	gzip -9nf build/$(DIST).tar

ifneq ($(filter clean,$(MAKECMDGOALS)),)
.NOTPARALLEL: # make -j8 clean all
endif

clean:
	rm -rf build
	rm -f $(PROGRAMS)

FORCE:

.PHONY: all aarch64 bench check-deps check check-all proof lint install \
	uninstall dist clean FORCE
.DELETE_ON_ERROR:
