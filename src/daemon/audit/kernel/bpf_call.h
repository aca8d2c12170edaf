/* bpf(2), as far as it is used here: the C library we build with comes without the kernel's headers. Results are as a system call's. */
#ifndef DSEC_AUDIT_BPF_CALL_H
#define DSEC_AUDIT_BPF_CALL_H

#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Before each record of a ring, its size with two bits that are not of it. */
#define RECORD_HEADER 8
#define RECORD_BUSY (1u << 31)
#define RECORD_DISCARDED (1u << 30)

/* Each member is the beginning of what the kernel takes; the rest is zero. */
union bpf_arguments {
	struct {
		uint32_t map;
		uint32_t unused;
		uint64_t key;
		uint64_t value;
		uint64_t flags;
	} element;
	struct {
		uint64_t path;
	} object;
	struct {
		uint64_t name;
		uint32_t program;
	} attachment;
	struct {
		uint32_t program;
		uint32_t target;
		uint32_t type;
	} link;
	unsigned char size[128];
};

static inline long bpf_call(int command, union bpf_arguments *arguments)
{
	return syscall(SYS_bpf, command, arguments, sizeof *arguments);
}

static inline long bpf_element(int command, int map, const void *key, void *value)
{
	union bpf_arguments arguments = {
		.element = { .map = map, .key = (uintptr_t)key, .value = (uintptr_t)value },
	};
	return bpf_call(command, &arguments);
}

static inline int bpf_look_up(int map, const void *key, void *value)
{
	return bpf_element(1, map, key, value);
}

static inline int bpf_update(int map, const void *key, void *value)
{
	return bpf_element(2, map, key, value);
}

static inline int bpf_delete(int map, const void *key)
{
	return bpf_element(3, map, key, NULL);
}

/* The first, where key is null. */
static inline int bpf_next_key(int map, const void *key, void *next)
{
	return bpf_element(4, map, key, next);
}

/* Opens what is pinned there. */
static inline int bpf_open(const char *path)
{
	union bpf_arguments arguments = { .object = { .path = (uintptr_t)path } };
	return bpf_call(7, &arguments);
}

/* A program that says itself where it belongs. Attached as long as the descriptor that this returns is open. */
static inline int bpf_attach(int program)
{
	union bpf_arguments arguments = { .attachment = { .program = program } };
	return bpf_call(17, &arguments);
}

/* The same, to a control group and those below it. */
static inline int bpf_attach_to_group(int program, int group, int type)
{
	union bpf_arguments arguments = { .link = { .program = program, .target = group, .type = type } };
	return bpf_call(28, &arguments);
}

#endif
