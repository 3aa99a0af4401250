// SPDX-License-Identifier: Apache-2.0
/*
 * A TCG plugin for qemu-aarch64: a model of a cache system in which a read
 * hit on a dirty line of the system level cache (SLC) moves the line up,
 * dirty. It counts what an SLC's performance counters would.
 *
 * Each thread has a private cache; all share the SLC. Both are LRU and hold
 * lines of one size, the one that DC CIVAC of the emulated CPU cleans.
 * - A private miss reads the SLC. A hit counts; a dirty line moves up and
 *   leaves the SLC, a clean one stays there, the core gets a clean copy. A
 *   miss is served by memory: a clean line, and no allocation in the SLC.
 * - A line that a private cache evicts goes to the SLC: a hit if it has the
 *   line, else an allocation. Dirty stays dirty.
 * - DC CIVAC: the line leaves every cache.
 * - A line that another core holds dirty comes from there, dirty, and a store
 *   takes the line from all others. Neither counts; once each thread works on
 *   lines of its own, neither happens.
 * With keep_dirty=1 the SLC keeps a dirty line on a read hit, and the core
 * gets a clean copy: the counter-case, a machine that needs no write-back.
 *
 * Virtual addresses stand for physical ones; instruction fetches and hardware
 * prefetches are not modelled. All data accesses of all threads go through
 * the caches, from the program's first instruction on, but a thread counts in
 * steady state only: after it ran a kernel's first instruction, it goes
 * through warm= visits (accesses to a line other than the thread's last one)
 * and counts the next count= visits. So a pass over a buffer of N lines is N
 * visits. When threads= threads have counted, the run ends: the result does
 * not depend on the speed of the emulation.
 *
 * Arguments, sizes in bytes: private= private_ways= slc= slc_ways= line=
 * keep_dirty= warm= count= threads=, and log= kernels= out= zva= as in
 * plugin_util.h. Output: one line of the parameters, one a thread, a total.
 */
#include "plugin_util.h"

struct slot {
	uint64_t line; /* its number plus one, 0: empty */
	uint64_t used;
	bool dirty;
};

struct cache {
	uint64_t bytes, ways, sets;
	struct slot *slots;
};

struct counts {
	uint64_t visits, misses, hits, allocs;
};

static struct core {
	struct cache cache;
	uint64_t kernel; /* the first one it ran, 0: none yet */
	uint64_t last_line, warmed;
	struct counts counts;
} core[MAX_VCPUS];

static pthread_mutex_t all = PTHREAD_MUTEX_INITIALIZER;
static struct cache slc;
static uint64_t private_bytes, private_ways, line_bytes;
static uint64_t warm, count, threads;
static bool keep_dirty;
static uint64_t now, done, cleaned, cleaned_dirty;

static void cache_init(struct cache *cache, uint64_t bytes, uint64_t ways)
{
	cache->bytes = bytes;
	cache->ways = ways;
	cache->sets = bytes / line_bytes / ways;
	if (!cache->sets || cache->sets * ways * line_bytes != bytes)
		die("a cache of %llu bytes has no whole sets of %llu ways",
		    (unsigned long long)bytes, (unsigned long long)ways);
	cache->slots = calloc(cache->sets * ways, sizeof(struct slot));
	if (!cache->slots)
		die("out of memory");
}

static struct slot *cache_set(const struct cache *cache, uint64_t line)
{
	return cache->slots + line % cache->sets * cache->ways;
}

static struct slot *cache_find(const struct cache *cache, uint64_t line)
{
	struct slot *set = cache->slots ? cache_set(cache, line) : NULL;

	for (uint64_t i = 0; set && i < cache->ways; i++)
		if (set[i].line == line + 1)
			return &set[i];
	return NULL;
}

/* An empty slot of the line's set, else the least recently used one. */
static struct slot *cache_room(const struct cache *cache, uint64_t line)
{
	struct slot *set = cache_set(cache, line), *room = set;

	for (uint64_t i = 0; i < cache->ways; i++) {
		if (!set[i].line)
			return &set[i];
		if (set[i].used < room->used)
			room = &set[i];
	}
	return room;
}

static void slot_fill(struct slot *slot, uint64_t line, bool dirty)
{
	slot->line = line + 1;
	slot->used = ++now;
	slot->dirty = dirty;
}

/* A victim of a private cache goes to the SLC, whose own goes to memory. */
static void evict(struct slot *victim, struct counts *counts)
{
	uint64_t line = victim->line - 1;
	struct slot *slot = cache_find(&slc, line);

	if (slot) {
		counts->hits++;
		slot_fill(slot, line, slot->dirty || victim->dirty);
	} else {
		counts->allocs++;
		slot_fill(cache_room(&slc, line), line, victim->dirty);
	}
	victim->line = 0;
}

/* Another core's copy; a dirty one, and any on a store, leaves that core. */
static bool take_from_others(const struct core *me, uint64_t line, bool store)
{
	bool dirty = false;

	for (struct core *other = core; other < core + MAX_VCPUS; other++) {
		struct slot *slot = NULL;

		if (other != me && other->cache.slots)
			slot = cache_find(&other->cache, line);
		if (slot && (slot->dirty || store)) {
			dirty |= slot->dirty;
			slot->line = 0;
		}
	}
	return dirty;
}

/* Reads a line that the private cache lacks; returns whether it is dirty. */
static bool read_shared(const struct core *me, uint64_t line, bool store,
			struct counts *counts)
{
	struct slot *slot;
	bool dirty;

	if (take_from_others(me, line, store))
		return true;
	slot = cache_find(&slc, line);
	if (!slot)
		return false;
	counts->hits++;
	slot->used = ++now;
	dirty = slot->dirty && !keep_dirty;
	if (dirty)
		slot->line = 0;
	return dirty;
}

static void touch(struct core *me, uint64_t line, bool store,
		  struct counts *counts)
{
	struct slot *slot = cache_find(&me->cache, line);
	bool dirty;

	if (slot) {
		slot->used = ++now;
		if (store && !slot->dirty)
			take_from_others(me, line, true);
		slot->dirty |= store;
		return;
	}
	counts->misses++;
	dirty = read_shared(me, line, store, counts);
	slot = cache_room(&me->cache, line);
	if (slot->line)
		evict(slot, counts);
	slot_fill(slot, line, dirty || store);
}

static void clean_invalidate(uint64_t line)
{
	struct slot *slot = cache_find(&slc, line);
	bool dirty = take_from_others(NULL, line, true);

	if (slot) {
		dirty |= slot->dirty;
		slot->line = 0;
	}
	cleaned++;
	cleaned_dirty += dirty;
}

static void print_counts(const char *who, uint64_t kernel,
			 const struct counts *counts)
{
	fprintf(out,
		"%s kernel=%llx visits=%llu misses=%llu hits=%llu "
		"allocs=%llu\n",
		who, (unsigned long long)kernel,
		(unsigned long long)counts->visits,
		(unsigned long long)counts->misses,
		(unsigned long long)counts->hits,
		(unsigned long long)counts->allocs);
}

static void print_result(void)
{
	struct counts total = {0};
	char who[32];

	fprintf(out,
		"model private=%llu private_ways=%llu slc=%llu slc_ways=%llu "
		"line=%llu keep_dirty=%d cleaned=%llu cleaned_dirty=%llu "
		"complete=%d\n",
		(unsigned long long)private_bytes,
		(unsigned long long)private_ways, (unsigned long long)slc.bytes,
		(unsigned long long)slc.ways, (unsigned long long)line_bytes,
		keep_dirty, (unsigned long long)cleaned,
		(unsigned long long)cleaned_dirty, done >= threads);
	for (unsigned int i = 0; i < MAX_VCPUS; i++) {
		if (!core[i].counts.visits)
			continue;
		snprintf(who, sizeof(who), "thread=%u", i);
		print_counts(who, core[i].kernel, &core[i].counts);
		total.visits += core[i].counts.visits;
		total.misses += core[i].counts.misses;
		total.hits += core[i].counts.hits;
		total.allocs += core[i].counts.allocs;
	}
	print_counts("total", 0, &total);
	fflush(out);
}

/* Where this visit's events count: nowhere, outside steady state. */
static struct counts *visit(struct core *me, uint64_t line)
{
	static struct counts nowhere;
	bool new_line = line != me->last_line;

	me->last_line = line;
	if (!me->kernel)
		return &nowhere;
	if (me->warmed < warm) {
		me->warmed += new_line;
		return &nowhere;
	}
	if (me->counts.visits == count) {
		if (new_line)
			return &nowhere;
		return &me->counts;
	}
	me->counts.visits += new_line;
	if (me->counts.visits == count && ++done >= threads) {
		print_result();
		_exit(0);
	}
	return &me->counts;
}

static struct core *my_core(unsigned int vcpu)
{
	struct core *me = &core[check_vcpu(vcpu)];

	if (!me->cache.slots)
		cache_init(&me->cache, private_bytes, private_ways);
	return me;
}

static void on_mem(unsigned int vcpu, uint32_t info, uint64_t addr, void *data)
{
	bool store = qemu_plugin_mem_is_store(info);
	uint64_t last = addr + (1u << qemu_plugin_mem_size_shift(info)) - 1;
	struct core *me;

	(void)data;
	log_open();
	pthread_mutex_lock(&all);
	me = my_core(vcpu);
	for (uint64_t line = addr / line_bytes; line <= last / line_bytes;
	     line++)
		touch(me, line, store, visit(me, line));
	pthread_mutex_unlock(&all);
}

static void on_kernel(unsigned int vcpu, void *data)
{
	pthread_mutex_lock(&all);
	if (!my_core(vcpu)->kernel)
		core[vcpu].kernel = kernel_of((uintptr_t)data);
	pthread_mutex_unlock(&all);
}

static void on_civac(unsigned int vcpu, void *data)
{
	uint64_t pc = (uintptr_t)data >> 5;
	uint64_t addr = log_register(pc, (uintptr_t)data & INSN_RT);

	(void)vcpu;
	pthread_mutex_lock(&all);
	clean_invalidate(addr / line_bytes);
	pthread_mutex_unlock(&all);
}

/* DC ZVA stores a block of zva= bytes, and is not seen as a store. */
static void on_zva(unsigned int vcpu, void *data)
{
	uint64_t pc = (uintptr_t)data >> 5;
	uint64_t addr = log_register(pc, (uintptr_t)data & INSN_RT);
	uint64_t line = (addr & ~(zva_bytes - 1)) / line_bytes;
	struct core *me;

	pthread_mutex_lock(&all);
	me = my_core(vcpu);
	for (uint64_t end = line + zva_bytes / line_bytes; line < end; line++)
		touch(me, line, true, visit(me, line));
	pthread_mutex_unlock(&all);
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		uint32_t word = insn_word(insn);
		uint64_t pc = qemu_plugin_insn_vaddr(insn);
		void *pc_rt = (void *)(uintptr_t)(pc << 5 | (word & INSN_RT));

		if ((word & ~INSN_RT) == INSN_DC_CIVAC)
			qemu_plugin_register_vcpu_insn_exec_cb(
				insn, on_civac, PLUGIN_CB_NO_REGS, pc_rt);
		if ((word & ~INSN_RT) == INSN_DC_ZVA)
			qemu_plugin_register_vcpu_insn_exec_cb(
				insn, on_zva, PLUGIN_CB_NO_REGS, pc_rt);
		if (kernel_of(pc) == pc && pc)
			qemu_plugin_register_vcpu_insn_exec_cb(
				insn, on_kernel, PLUGIN_CB_NO_REGS,
				(void *)(uintptr_t)pc);
		qemu_plugin_register_vcpu_mem_cb(insn, on_mem,
						 PLUGIN_CB_NO_REGS,
						 PLUGIN_MEM_READ_WRITE, NULL);
	}
}

static void on_exit_print(qemu_plugin_id_t id, void *data)
{
	(void)id, (void)data;
	pthread_mutex_lock(&all);
	print_result();
	pthread_mutex_unlock(&all);
}

PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id,
				      const struct qemu_info *info, int argc,
				      char **argv)
{
	(void)info;
	args_in_common(argc, argv);
	line_bytes = arg_number(argc, argv, "line", 64);
	private_bytes = arg_number(argc, argv, "private", 1 << 20);
	private_ways = arg_number(argc, argv, "private_ways", 8);
	keep_dirty = arg_number(argc, argv, "keep_dirty", 0);
	warm = arg_number(argc, argv, "warm", 0);
	count = arg_number(argc, argv, "count", UINT64_MAX);
	threads = arg_number(argc, argv, "threads", 1);
	cache_init(&slc, arg_number(argc, argv, "slc", 32 << 20),
		   arg_number(argc, argv, "slc_ways", 16));
	qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
	qemu_plugin_register_atexit_cb(id, on_exit_print, NULL);
	return 0;
}
