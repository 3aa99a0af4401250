/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the two emulator plugins share: the plugin interface, arguments, the
 * kernels' address ranges, and the registers of a DC instruction.
 *
 * The interface is version 1 of TCG plugins, declared afresh because Debian
 * ships no header with QEMU 7.2; only what is used here.
 *
 * Version 1 cannot read registers, so the address of a DC instruction comes
 * from QEMU's own log. With -singlestep every instruction is a block of its
 * own, and `-d exec,cpu,tid -dfilter ADDR+4` logs all registers, and flushes
 * the log, right before the block at ADDR runs. The log goes into a pipe that
 * is read here, in the callback that runs at the start of that very block. So
 * one run gives the address in exact order with all other events, and no order
 * in which a buffer is walked has to be assumed.
 */
#ifndef PLUGIN_UTIL_H
#define PLUGIN_UTIL_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PLUGIN_EXPORT __attribute__((visibility("default")))
#define PLUGIN_API_VERSION 1

typedef uint64_t qemu_plugin_id_t;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_info;

enum { PLUGIN_CB_NO_REGS = 0 };
enum { PLUGIN_MEM_READ_WRITE = 3 };

typedef void (*tb_trans_cb)(qemu_plugin_id_t, struct qemu_plugin_tb *);
typedef void (*insn_exec_cb)(unsigned int vcpu, void *data);
typedef void (*mem_cb)(unsigned int vcpu, uint32_t info, uint64_t addr,
		       void *data);
typedef void (*syscall_cb)(qemu_plugin_id_t, unsigned int vcpu, int64_t number,
			   uint64_t, uint64_t, uint64_t, uint64_t, uint64_t,
			   uint64_t, uint64_t, uint64_t);
typedef void (*syscall_ret_cb)(qemu_plugin_id_t, unsigned int vcpu,
			       int64_t number, int64_t value);
typedef void (*atexit_cb)(qemu_plugin_id_t, void *data);

void qemu_plugin_register_vcpu_tb_trans_cb(qemu_plugin_id_t, tb_trans_cb);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *,
						 size_t);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *,
					    insn_exec_cb, int flags,
					    void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, mem_cb,
				      int flags, int access, void *data);
unsigned int qemu_plugin_mem_size_shift(uint32_t info);
bool qemu_plugin_mem_is_store(uint32_t info);
void qemu_plugin_register_vcpu_syscall_cb(qemu_plugin_id_t, syscall_cb);
void qemu_plugin_register_vcpu_syscall_ret_cb(qemu_plugin_id_t, syscall_ret_cb);
void qemu_plugin_register_atexit_cb(qemu_plugin_id_t, atexit_cb, void *data);

PLUGIN_EXPORT int qemu_plugin_version = PLUGIN_API_VERSION;

#define MAX_VCPUS 256
#define MAX_KERNELS 256

/* A64 instructions that matter here; Rt is in the low five bits. */
#define INSN_RT 0x1fu
#define INSN_DC_CIVAC 0xd50b7e20u
#define INSN_DC_ZVA 0xd50b7420u
#define INSN_IC_IVAU 0xd50b7520u
#define INSN_DSB_ISH 0xd5033b9fu

static void __attribute__((noreturn, format(printf, 1, 2)))
die(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	fputs("plugin: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	_exit(99);
}

static inline unsigned int check_vcpu(unsigned int vcpu)
{
	if (vcpu >= MAX_VCPUS)
		die("more than %d threads", MAX_VCPUS);
	return vcpu;
}

/* An instruction of four bytes, as all of A64 are; else 0. */
static inline uint32_t insn_word(const struct qemu_plugin_insn *insn)
{
	uint32_t word = 0;

	if (qemu_plugin_insn_size(insn) == sizeof(word))
		memcpy(&word, qemu_plugin_insn_data(insn), sizeof(word));
	return word;
}

/* Arguments are name=value; a value of bytes is a plain number. */

static inline const char *arg_text(int argc, char **argv, const char *name,
				   const char *otherwise)
{
	size_t len = strlen(name);

	for (int i = 0; i < argc; i++)
		if (!strncmp(argv[i], name, len) && argv[i][len] == '=')
			return argv[i] + len + 1;
	return otherwise;
}

static inline uint64_t arg_number(int argc, char **argv, const char *name,
				  uint64_t otherwise)
{
	const char *text = arg_text(argc, argv, name, NULL);
	char *end;
	uint64_t value;

	if (!text)
		return otherwise;
	errno = 0;
	value = strtoull(text, &end, 0);
	if (errno || end == text || *end)
		die("%s=%s: not a number", name, text);
	return value;
}

/* out=PATH, stderr without it. */
static inline FILE *arg_output(int argc, char **argv)
{
	const char *path = arg_text(argc, argv, "out", NULL);
	FILE *out = path ? fopen(path, "w") : stderr;

	if (!out)
		die("out=%s: %s", path, strerror(errno));
	return out;
}

/* kernels=FROM-TO+FROM-TO...: code of the measuring loops, in hex. */

static struct {
	uint64_t from, to;
} kernel_range[MAX_KERNELS];
static size_t kernel_ranges;

static inline void arg_kernels(int argc, char **argv)
{
	const char *p = arg_text(argc, argv, "kernels", "");
	char *end;

	while (*p) {
		if (kernel_ranges == MAX_KERNELS)
			die("kernels: more than %d", MAX_KERNELS);
		kernel_range[kernel_ranges].from = strtoull(p, &end, 16);
		if (*end != '-')
			die("kernels: no range at '%s'", p);
		kernel_range[kernel_ranges++].to = strtoull(end + 1, &end, 16);
		if (*end && *end != '+')
			die("kernels: no range at '%s'", p);
		p = *end ? end + 1 : end;
	}
}

/* The start of the kernel that holds this address, or 0. */
static inline uint64_t kernel_of(uint64_t pc)
{
	for (size_t i = 0; i < kernel_ranges; i++)
		if (pc >= kernel_range[i].from && pc < kernel_range[i].to)
			return kernel_range[i].from;
	return 0;
}

/*
 * log=PREFIX: QEMU's -d tid makes a log PREFIX.TID for each thread (a common
 * log could not tell whose registers are whose). Each is a FIFO made and read
 * by the thread itself.
 */

#define LOG_BYTES 65536

static const char *log_prefix;
static __thread int log_fd = -1;
static __thread char log_text[LOG_BYTES];

/* To be called by each thread before its first DC instruction. */
static inline void log_open(void)
{
	char path[4096];

	if (log_fd >= 0 || !log_prefix)
		return;
	snprintf(path, sizeof(path), "%s.%ld", log_prefix,
		 (long)syscall(SYS_gettid));
	if (mkfifo(path, 0600) && errno != EEXIST)
		die("%s: %s", path, strerror(errno));
	log_fd = open(path, O_RDONLY | O_NONBLOCK);
	if (log_fd < 0)
		die("%s: %s", path, strerror(errno));
}

/*
 * The newest registers in this thread's log. A block that was put off by a
 * pending signal is logged again, so only the newest are right.
 */
static inline const char *log_newest(void)
{
	const char *newest = NULL;
	ssize_t got = read(log_fd, log_text, LOG_BYTES - 1);

	log_text[got > 0 ? got : 0] = '\0';
	for (const char *p = log_text; (p = strstr(p, " PC=")); p++)
		newest = p;
	return newest;
}

/* Register Rt of the instruction at pc, which this thread is about to run. */
static inline uint64_t log_register(uint64_t pc, unsigned int rt)
{
	char name[8];
	const char *value;

	if (rt == INSN_RT)
		return 0; /* xzr */
	value = log_newest();
	if (!value || strtoull(value + 4, NULL, 16) != pc)
		die("no registers for %#llx in the log: -d exec,cpu,tid, "
		    "-dfilter?",
		    (unsigned long long)pc);
	snprintf(name, sizeof(name), "X%02u=", rt);
	value = strstr(value, name);
	if (!value)
		die("no %s in the log", name);
	return strtoull(value + 4, NULL, 16);
}

static FILE *out;
static uint64_t zva_bytes;

/* All of the above, and zva=: the bytes that DC ZVA stores. */
static inline void args_in_common(int argc, char **argv)
{
	out = arg_output(argc, argv);
	log_prefix = arg_text(argc, argv, "log", NULL);
	arg_kernels(argc, argv);
	zva_bytes = arg_number(argc, argv, "zva", 64);
}

#endif /* PLUGIN_UTIL_H */
