// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
/*
 * Starts and ends of processes and connects, in sandboxes only. The kernel lends some of what is needed to GPL programs only, hence
 * the choice of licences for this file.
 *
 * A sandbox is known by its process namespace: nothing inside can leave it, and processes in namespaces below still are in it. Connects
 * are seen where the kernel has its own copy of the address, so that no other thread can change it in between, and io_uring, TCP fast
 * open and multipath TCP come by, too.
 *
 * Kernel structures name only the fields that are read; the loader finds where they are in the running kernel (CO-RE).
 */
#include "event.h"

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static u64 (*current_uid_gid)(void) = (void *)15;
static long (*read_user)(void *to, u32 size, const void *from) = (void *)112;
static long (*read_kernel)(void *to, u32 size, const void *from) = (void *)113;
static long (*read_kernel_string)(void *to, u32 size, const void *from) = (void *)115;
static u64 (*boot_nanoseconds)(void) = (void *)125;
static void *(*ring_reserve)(void *ring, u64 size, u64 flags) = (void *)131;
static void (*ring_submit)(void *record, u64 flags) = (void *)132;
static struct task_struct *(*current_task)(void) = (void *)35;

#define MAP_TYPE_HASH 1
#define MAP_TYPE_ARRAY 2
#define MAP_TYPE_RING 27
#define NUMBER(name, value) int (*name)[value]

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct ns_common {
	u32 inum;
};
struct pid_namespace {
	struct ns_common ns;
	struct task_struct *child_reaper;
};
struct upid {
	int nr;
	struct pid_namespace *ns;
};
struct pid {
	u32 level;
	struct upid numbers[1];
};
typedef struct {
	int counter;
} atomic_t;
struct signal_struct {
	atomic_t live;
	int group_exit_code;
};
struct mm_struct {
	unsigned long arg_start;
	unsigned long arg_end;
};
struct task_struct {
	u32 flags;
	int exit_code;
	int tgid;
	u64 start_boottime;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct signal_struct *signal;
	struct mm_struct *mm;
	char comm[COMMAND_SIZE];
};
struct linux_binprm {
	const char *filename;
};
#pragma clang attribute pop

struct {
	NUMBER(type, MAP_TYPE_RING);
	NUMBER(max_entries, RING_SIZE);
} ring SEC(".maps");

struct {
	NUMBER(type, MAP_TYPE_HASH);
	NUMBER(max_entries, 131072);
	NUMBER(map_flags, 1); /* not allocated beforehand */
	u32 *key;
	struct sandbox *value;
} sandboxes SEC(".maps");

/* Of all sandboxes, for the reader to see at a glance whether there is anything new. */
struct {
	NUMBER(type, MAP_TYPE_ARRAY);
	NUMBER(max_entries, 1);
	u32 *key;
	u64 *value;
} lost SEC(".maps");

char terms[] SEC("license") = "GPL";

/* How deep in process namespaces sandboxes are looked for: the node may itself be in a container. */
#define MAX_DEPTH 4
#define NANOSECONDS_PER_TICK 10000000
/* Events of a kind and a sandbox that are let through in a window of 134 ms: a fork bomb costs a comparison each, and leaves room for others. */
#define WINDOW_SHIFT 27
#define WINDOW_EVENTS 256
#define FORKED_WITHOUT_EXEC 0x40
#define FAMILY_INET 2
#define FAMILY_INET6 10
#define GO_ON 1

/* Reads a field of a kernel structure; what cannot be read stays. */
#define READ(to, from, field) read_kernel(&(to), sizeof(to), __builtin_preserve_access_index(&(from)->field))

struct place {
	struct sandbox *sandbox;
	u32 namespace;
	u32 depth;
	u32 pid;
};

/* The numbers of a process, for all of its threads. */
INLINE struct pid *numbers_of(struct task_struct *task)
{
	struct task_struct *leader = 0;
	struct pid *pid = 0;
	READ(leader, task, group_leader);
	READ(pid, leader, thread_pid);
	return pid;
}

/* Number and namespace of a process at a depth; 0 where it is not so deep. */
INLINE u32 number_at(struct pid *pid, u32 depth, struct pid_namespace **namespace)
{
	struct upid number;
	u32 level = 0;
	READ(level, pid, level);
	if (level < depth)
		return 0;
	const char *numbers = __builtin_preserve_access_index((const char *)&pid->numbers);
	if (read_kernel(&number, sizeof number, numbers + depth * sizeof number) != 0)
		return 0;
	*namespace = number.ns;
	return number.nr;
}

INLINE int began_at(struct pid_namespace *namespace, u64 ticks)
{
	struct task_struct *first = 0;
	u64 time = 0;
	READ(first, namespace, child_reaper);
	READ(time, first, start_boottime);
	return time / NANOSECONDS_PER_TICK == ticks;
}

/* The sandbox that a process is in. */
INLINE int find(struct task_struct *task, struct place *place)
{
	struct pid *pid = numbers_of(task);
#pragma unroll
	for (u32 depth = 1; depth <= MAX_DEPTH; depth++) {
		struct pid_namespace *namespace = 0;
		u32 inum = 0;
		u32 number = number_at(pid, depth, &namespace);
		if (number == 0)
			return 0;
		READ(inum, namespace, ns.inum);
		struct sandbox *sandbox = map_lookup(&sandboxes, &inum);
		if (sandbox == 0)
			continue;
		if (!began_at(namespace, sandbox->started))
			return 0;
		place->sandbox = sandbox;
		place->namespace = inum;
		place->depth = depth;
		place->pid = number;
		return 1;
	}
	return 0;
}

INLINE void count_lost(struct sandbox *sandbox)
{
	u32 key = 0;
	u64 *all = map_lookup(&lost, &key);
	__sync_fetch_and_add(&sandbox->lost, 1);
	if (all != 0)
		__sync_fetch_and_add(all, 1);
}

/* Whether the sandbox may tell one more of a kind; counts it as lost where not. */
INLINE int may_tell(struct sandbox *sandbox, u32 kind)
{
	u64 window = boot_nanoseconds() >> WINDOW_SHIFT;
	u32 rate = kind - EVENT_EXEC;
	if (sandbox->rates[rate].window != window) {
		sandbox->rates[rate].window = window;
		sandbox->rates[rate].used = 0;
	}
	__sync_fetch_and_add(&sandbox->rates[rate].used, 1);
	if (sandbox->rates[rate].used <= WINDOW_EVENTS)
		return 1;
	count_lost(sandbox);
	return 0;
}

/* 0 where the parent is none of the sandbox's processes. */
INLINE u32 parent_of(struct task_struct *task, const struct place *place)
{
	struct task_struct *leader = 0;
	struct task_struct *parent = 0;
	u32 found = 0;
	READ(leader, task, group_leader);
	READ(parent, leader, real_parent);
	struct pid *pid = numbers_of(parent);
#pragma unroll
	for (u32 depth = 1; depth <= MAX_DEPTH; depth++) {
		struct pid_namespace *namespace = 0;
		u32 inum = 0;
		if (depth != place->depth)
			continue;
		u32 number = number_at(pid, depth, &namespace);
		READ(inum, namespace, ns.inum);
		if (inum == place->namespace)
			found = number;
	}
	return found;
}

INLINE void describe(struct event *event, u32 kind, struct task_struct *task, const struct place *place)
{
	event->kind = kind;
	event->token = place->sandbox->token;
	event->time = boot_nanoseconds();
	event->pid = place->pid;
	event->parent = parent_of(task, place);
	event->user = (u32)current_uid_gid();
	READ(event->node_pid, task, tgid);
	READ(event->command, task, comm);
}

SEC("tp_btf/sched_process_exec")
int on_exec(u64 *arguments)
{
	struct task_struct *task = (struct task_struct *)arguments[0];
	struct linux_binprm *program = (struct linux_binprm *)arguments[2];
	struct place place;
	if (!find(task, &place) || !may_tell(place.sandbox, EVENT_EXEC))
		return 0;
	struct exec_event *exec = ring_reserve(&ring, sizeof *exec, 0);
	if (exec == 0) {
		count_lost(place.sandbox);
		return 0;
	}
	describe(&exec->event, EVENT_EXEC, task, &place);
	const char *path = 0;
	READ(path, program, filename);
	long path_size = read_kernel_string(exec->path, PATH_SIZE, path);
	exec->path_size = path_size < 0 ? 0 : path_size;
	exec->truncated = path_size == PATH_SIZE;
	struct mm_struct *memory = 0;
	unsigned long start = 0, end = 0;
	READ(memory, task, mm);
	READ(start, memory, arg_start);
	READ(end, memory, arg_end);
	u64 size = end - start;
	if (size > ARGUMENTS_SIZE) {
		size = ARGUMENTS_SIZE;
		exec->truncated = 1;
	}
	exec->arguments_size = size;
	if (read_user(exec->arguments, size, (const void *)start) != 0) {
		exec->arguments_size = 0;
		exec->truncated = 1;
	}
	ring_submit(exec, 0);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int on_exit(u64 *arguments)
{
	struct task_struct *task = (struct task_struct *)arguments[0];
	struct signal_struct *group = 0;
	struct place place;
	u32 flags = 0;
	int live = 0, of_group = 0, of_thread = 0;
	READ(flags, task, flags);
	READ(group, task, signal);
	READ(live, group, live.counter);
	/* The last thread, of a process that was told of. */
	if (live != 0 || (flags & FORKED_WITHOUT_EXEC) != 0)
		return 0;
	if (!find(task, &place) || !may_tell(place.sandbox, EVENT_EXIT))
		return 0;
	struct exit_event *exit = ring_reserve(&ring, sizeof *exit, 0);
	if (exit == 0) {
		count_lost(place.sandbox);
		return 0;
	}
	describe(&exit->event, EVENT_EXIT, task, &place);
	READ(of_group, group, group_exit_code);
	READ(of_thread, task, exit_code);
	exit->status = of_group != 0 ? of_group : of_thread;
	exit->unused = 0;
	ring_submit(exit, 0);
	return 0;
}

/* For the caller to say where to, and to submit. @port in network order */
INLINE struct connect_event *begin_connect(u32 family, u32 protocol, u32 port)
{
	struct task_struct *task = current_task();
	struct place place;
	if (!find(task, &place) || !may_tell(place.sandbox, EVENT_CONNECT))
		return 0;
	struct connect_event *connect = ring_reserve(&ring, sizeof *connect, 0);
	if (connect == 0) {
		count_lost(place.sandbox);
		return 0;
	}
	describe(&connect->event, EVENT_CONNECT, task, &place);
	connect->family = family;
	connect->protocol = protocol;
	connect->port = __builtin_bswap16(port);
	return connect;
}

/* As the kernel hands it over, in network order. */
struct socket_address {
	u32 given_family;
	u32 inet;
	u32 inet6[4];
	u32 port;
	u32 family;
	u32 type;
	u32 protocol;
};

SEC("cgroup/connect4")
int on_connect4(struct socket_address *address)
{
	struct connect_event *connect = begin_connect(FAMILY_INET, address->protocol, address->port);
	if (connect == 0)
		return GO_ON;
	connect->address[0] = address->inet;
	ring_submit(connect, 0);
	return GO_ON;
}

SEC("cgroup/connect6")
int on_connect6(struct socket_address *address)
{
	struct connect_event *connect = begin_connect(FAMILY_INET6, address->protocol, address->port);
	if (connect == 0)
		return GO_ON;
	connect->address[0] = address->inet6[0];
	connect->address[1] = address->inet6[1];
	connect->address[2] = address->inet6[2];
	connect->address[3] = address->inet6[3];
	ring_submit(connect, 0);
	return GO_ON;
}
