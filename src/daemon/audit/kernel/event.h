/*
 * What the kernel's side (audit.bpf.c) hands to the reader (reader.c), and the reader, with a length before each, to the daemon
 * (event-codec.ts). Little-endian, without padding.
 */
#ifndef DSEC_AUDIT_EVENT_H
#define DSEC_AUDIT_EVENT_H

#define RING_SIZE (8 << 20)
#define COMMAND_SIZE 16
#define PATH_SIZE 512
#define ARGUMENTS_SIZE 1024

enum event_kind {
	EVENT_EXEC = 1,
	EVENT_CONNECT = 2,
	EVENT_EXIT = 3,
	/* The reader's own. */
	EVENT_READY = 4,
	EVENT_LOST = 5,
	EVENT_DONE = 6,
};

/* Of the sandboxes map, by the inode number of the sandbox's process namespace. */
struct sandbox {
	/* Clock ticks since boot of the namespace's first process: a number that was given again names nobody. */
	unsigned long long started;
	unsigned long long lost;
	unsigned int token;
	unsigned int unused;
	/* By kind of event. */
	struct {
		unsigned long long window;
		unsigned long long used;
	} rates[3];
};

struct event {
	unsigned int kind;
	unsigned int token;
	/* Nanoseconds since boot; since the epoch when the reader passes it on. */
	unsigned long long time;
	/* As the node and as the sandbox number it. */
	unsigned int node_pid;
	unsigned int pid;
	/* As the sandbox numbers it; 0 where it is none of its processes. */
	unsigned int parent;
	unsigned int user;
	char command[COMMAND_SIZE];
};

struct exec_event {
	struct event event;
	/* The last byte, a null, included. */
	unsigned short path_size;
	unsigned short arguments_size;
	unsigned int truncated;
	/* The reader passes on what is used of both. */
	char path[PATH_SIZE];
	char arguments[ARGUMENTS_SIZE];
};

struct connect_event {
	struct event event;
	/* AF_INET or AF_INET6. */
	unsigned short family;
	unsigned short port;
	unsigned int protocol;
	/* In network order; IPv4 in the first. */
	unsigned int address[4];
};

struct exit_event {
	struct event event;
	/* As wait(2) has it. */
	unsigned int status;
	unsigned int unused;
};

struct lost_event {
	unsigned int kind;
	unsigned int token;
	/* Since the sandbox was added. */
	unsigned long long count;
};

/* The reader's answer to being started (READY, token 0), and to each request (DONE). */
struct done_event {
	unsigned int kind;
	unsigned int token;
};

/* What the daemon asks the reader for. */
struct request {
	/* 1: add, 0: remove. */
	unsigned int add;
	unsigned int namespace;
	unsigned long long started;
	unsigned int token;
	unsigned int unused;
};

#endif
