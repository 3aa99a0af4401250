// SPDX-License-Identifier: Apache-2.0
/*
 * A TCG plugin for qemu-aarch64 that writes what happens to the program's
 * buffers, one event a line, in the one order in which it happened. A buffer
 * is what the program maps to write to, stacks excepted.
 *
 *	M VCPU ADDR BYTES PROT FLAGS	mapped (decimal sizes, hex addresses)
 *	U VCPU ADDR BYTES		unmapped
 *	S VCPU ADDR BYTES		stored to, by a thread not in its kernel
 *	I VCPU				IC IVAU
 *	Z VCPU ADDR BYTES		DC ZVA, which is a store, too
 *	C VCPU ADDR			DC CIVAC
 *	B VCPU				DSB ISH
 *	K VCPU PC			this thread's first instruction of a
 *					kernel, or first one in a buffer; its
 *					loads and stores come after
 *	R VCPU ADDR BYTES		loaded, by a thread not in its kernel;
 *					only if asked for by reads=1
 *
 * Arguments: reads=, mmap= and munmap= (the numbers of these system calls,
 * arm64's by default), and log=, kernels=, out= and zva=, which plugin_util.h
 * explains.
 */
#include "plugin_util.h"

/* Numbers of system calls, of arm64 and most newer architectures. */
#define NR_MUNMAP 215
#define NR_MMAP 222
#define GUEST_PROT_WRITE 2
#define GUEST_MAP_STACK 0x20000
#define MAX_BUFFERS 4096

static pthread_mutex_t order = PTHREAD_MUTEX_INITIALIZER;
static uint64_t nr_mmap, nr_munmap;
static bool reads;

static struct {
	uint64_t from, to;
} buffer[MAX_BUFFERS];
static size_t buffers;

static struct {
	uint64_t args[4]; /* of the system call that is under way */
	bool in_kernel;
} thread[MAX_VCPUS];

static bool in_buffer(uint64_t addr)
{
	for (size_t i = 0; i < buffers; i++)
		if (addr >= buffer[i].from && addr < buffer[i].to)
			return true;
	return false;
}

static void on_mem(unsigned int vcpu, uint32_t info, uint64_t addr, void *data)
{
	bool store = qemu_plugin_mem_is_store(info);

	(void)data;
	log_open();
	check_vcpu(vcpu);
	pthread_mutex_lock(&order);
	if ((store || reads) && !thread[vcpu].in_kernel && in_buffer(addr))
		fprintf(out, "%c %u %llx %u\n", store ? 'S' : 'R', vcpu,
			(unsigned long long)addr,
			1u << qemu_plugin_mem_size_shift(info));
	pthread_mutex_unlock(&order);
}

static void on_kernel(unsigned int vcpu, void *data)
{
	pthread_mutex_lock(&order);
	if (!thread[vcpu].in_kernel) {
		thread[vcpu].in_kernel = true;
		fprintf(out, "K %u %llx\n", vcpu,
			(unsigned long long)(uintptr_t)data);
	}
	pthread_mutex_unlock(&order);
}

static void on_plain(unsigned int vcpu, void *data)
{
	pthread_mutex_lock(&order);
	fprintf(out, "%c %u\n", (int)(intptr_t)data, vcpu);
	pthread_mutex_unlock(&order);
}

/* A DC instruction, as it was met; never freed, there are a handful. */
struct dc {
	uint64_t pc;
	unsigned int rt;
	char event;
};

static void on_dc(unsigned int vcpu, void *data)
{
	const struct dc *dc = data;
	uint64_t addr;

	pthread_mutex_lock(&order);
	addr = log_register(dc->pc, dc->rt);
	if (dc->event == 'Z')
		fprintf(out, "Z %u %llx %llu\n", vcpu,
			(unsigned long long)(addr & ~(zva_bytes - 1)),
			(unsigned long long)zva_bytes);
	else
		fprintf(out, "C %u %llx\n", vcpu, (unsigned long long)addr);
	pthread_mutex_unlock(&order);
}

static void watch_dc(struct qemu_plugin_insn *insn, char event)
{
	struct dc *dc = malloc(sizeof(*dc));

	if (!dc)
		die("out of memory");
	dc->pc = qemu_plugin_insn_vaddr(insn);
	dc->rt = insn_word(insn) & INSN_RT;
	dc->event = event;
	qemu_plugin_register_vcpu_insn_exec_cb(insn, on_dc, PLUGIN_CB_NO_REGS,
					       dc);
}

static void watch_insn(struct qemu_plugin_insn *insn)
{
	uint32_t word = insn_word(insn);
	void *pc = (void *)(uintptr_t)qemu_plugin_insn_vaddr(insn);
	char event = 0;

	if ((word & ~INSN_RT) == INSN_DC_CIVAC)
		watch_dc(insn, 'C');
	else if ((word & ~INSN_RT) == INSN_DC_ZVA)
		watch_dc(insn, 'Z');
	else if ((word & ~INSN_RT) == INSN_IC_IVAU)
		event = 'I';
	else if (word == INSN_DSB_ISH)
		event = 'B';
	if (event)
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_plain,
						       PLUGIN_CB_NO_REGS,
						       (void *)(intptr_t)event);
	if (kernel_of((uintptr_t)pc) || in_buffer((uintptr_t)pc))
		qemu_plugin_register_vcpu_insn_exec_cb(insn, on_kernel,
						       PLUGIN_CB_NO_REGS, pc);
	qemu_plugin_register_vcpu_mem_cb(insn, on_mem, PLUGIN_CB_NO_REGS,
					 PLUGIN_MEM_READ_WRITE, NULL);
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	pthread_mutex_lock(&order);
	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++)
		watch_insn(qemu_plugin_tb_get_insn(tb, i));
	pthread_mutex_unlock(&order);
}

static void on_syscall(qemu_plugin_id_t id, unsigned int vcpu, int64_t number,
		       uint64_t a1, uint64_t a2, uint64_t a3, uint64_t a4,
		       uint64_t a5, uint64_t a6, uint64_t a7, uint64_t a8)
{
	(void)id, (void)number;
	(void)a5, (void)a6, (void)a7, (void)a8;
	thread[check_vcpu(vcpu)].args[0] = a1;
	thread[vcpu].args[1] = a2;
	thread[vcpu].args[2] = a3;
	thread[vcpu].args[3] = a4;
}

static void mapped(unsigned int vcpu, uint64_t addr, const uint64_t *args)
{
	if (!(args[2] & GUEST_PROT_WRITE) || (args[3] & GUEST_MAP_STACK))
		return;
	if (buffers == MAX_BUFFERS)
		die("more than %d mappings", MAX_BUFFERS);
	buffer[buffers].from = addr;
	buffer[buffers++].to = addr + args[1];
	fprintf(out, "M %u %llx %llu %llx %llx\n", vcpu,
		(unsigned long long)addr, (unsigned long long)args[1],
		(unsigned long long)args[2], (unsigned long long)args[3]);
}

/* Parts of a mapping stay watched: an arena is trimmed to its alignment. */
static void unmapped(unsigned int vcpu, uint64_t addr, uint64_t bytes)
{
	fprintf(out, "U %u %llx %llu\n", vcpu, (unsigned long long)addr,
		(unsigned long long)bytes);
	for (size_t i = 0; i < buffers; i++)
		if (buffer[i].from >= addr && buffer[i].to <= addr + bytes)
			buffer[i] = buffer[--buffers];
}

static void on_syscall_ret(qemu_plugin_id_t id, unsigned int vcpu,
			   int64_t number, int64_t value)
{
	const uint64_t *args = thread[vcpu].args;

	(void)id;
	pthread_mutex_lock(&order);
	if (number == (int64_t)nr_mmap && (value > 0 || value < -4095))
		mapped(vcpu, (uint64_t)value, args);
	else if (number == (int64_t)nr_munmap && value == 0)
		unmapped(vcpu, args[0], args[1]);
	pthread_mutex_unlock(&order);
}

static void on_exit_write(qemu_plugin_id_t id, void *data)
{
	(void)id, (void)data;
	pthread_mutex_lock(&order);
	fflush(out);
	pthread_mutex_unlock(&order);
}

PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id,
				      const struct qemu_info *info, int argc,
				      char **argv)
{
	(void)info;
	args_in_common(argc, argv);
	nr_mmap = arg_number(argc, argv, "mmap", NR_MMAP);
	nr_munmap = arg_number(argc, argv, "munmap", NR_MUNMAP);
	reads = arg_number(argc, argv, "reads", 0);
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
	qemu_plugin_register_vcpu_syscall_cb(id, on_syscall);
	qemu_plugin_register_vcpu_syscall_ret_cb(id, on_syscall_ret);
	qemu_plugin_register_atexit_cb(id, on_exit_write, NULL);
	return 0;
}
