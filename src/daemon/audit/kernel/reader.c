/*
 * dsec-audit BPFTOOL OBJECT
 *
 * Has bpftool load the kernel's side into a bpffs that nobody else sees, attaches it, gives up its privileges, and passes on to stdout what
 * the kernel tells, each record with its length (32 bits) before it. Requests come on stdin. All that is loaded hangs on this process's
 * descriptors and goes with it, however it ends; it ends when stdin or stdout does.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "bpf_call.h"
#include "event.h"

/* The same numbers on every architecture. */
#define FSOPEN 430
#define FSCONFIG 431
#define FSMOUNT 432
#define FSCONFIG_CREATE 6

/* Where a program of a control group belongs. */
#define CONNECT4 10
#define CONNECT6 11

#define NOBODY 65534
/* What kernels before 5.19 ask for with every use of a map. */
#define CAPABILITY_BPF 39
#define CAPABILITY_VERSION_3 0x20080522

/* Records that are passed on before a pause: what the daemon is given to do has a limit, beyond which the kernel counts what it drops. */
#define BATCH 1000
#define PAUSE_MS 50
#define IDLE_MS 1000
#define OUTPUT_SIZE 65536

static int ring_map, sandbox_map, lost_map;
static unsigned char *consumer, *producer;
static size_t page;

static const int ignored[] = { SIGPIPE, SIGHUP, SIGINT, SIGTERM };

static char output[OUTPUT_SIZE];
static size_t output_used;

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(1);
}

/* A file system without a place in the file tree: it goes with the descriptor, which bpftool inherits. */
static int mount_nowhere(const char *type)
{
	int context = syscall(FSOPEN, type, 0);
	if (context < 0 || syscall(FSCONFIG, context, FSCONFIG_CREATE, NULL, NULL, 0) < 0)
		fail(type);
	int root = syscall(FSMOUNT, context, 0, 0);
	if (root < 0)
		fail(type);
	close(context);
	return root;
}

static void load(const char *bpftool, const char *object, const char *directory)
{
	char programs[64], maps[64];
	snprintf(programs, sizeof programs, "%s/programs", directory);
	snprintf(maps, sizeof maps, "%s/maps", directory);
	pid_t child = fork();
	if (child < 0)
		fail("fork");
	if (child == 0) {
		/* What it says is for people. */
		dup2(STDERR_FILENO, STDOUT_FILENO);
		close(STDIN_FILENO);
		open("/dev/null", O_RDONLY);
		execl(bpftool, "bpftool", "prog", "loadall", object, programs, "pinmaps", maps, (char *)NULL);
		fail(bpftool);
	}
	int status;
	if (waitpid(child, &status, 0) != child || status != 0) {
		fputs("bpftool could not load the programs\n", stderr);
		exit(1);
	}
}

static int open_pinned(const char *directory, const char *name)
{
	char path[512];
	snprintf(path, sizeof path, "%s/%s", directory, name);
	int fd = bpf_open(path);
	if (fd < 0)
		fail(name);
	return fd;
}

/* By the name that bpftool gives it: of the function, or, as it did in the past, of its section. */
static int attach(int program, const char *name, int groups)
{
	if (strstr(name, "connect4") != NULL)
		return bpf_attach_to_group(program, groups, CONNECT4);
	if (strstr(name, "connect6") != NULL)
		return bpf_attach_to_group(program, groups, CONNECT6);
	return bpf_attach(program);
}

/* The descriptors stay open: they are what keeps the programs attached. */
static void attach_all(const char *directory)
{
	DIR *programs = opendir(directory);
	if (programs == NULL)
		fail(directory);
	/* Whoever has sockets is below its root, also where version 1 does the rest. */
	int groups = mount_nowhere("cgroup2");
	int attached = 0;
	for (struct dirent *entry = readdir(programs); entry != NULL; entry = readdir(programs)) {
		if (entry->d_name[0] == '.')
			continue;
		if (attach(open_pinned(directory, entry->d_name), entry->d_name, groups) < 0)
			fail(entry->d_name);
		attached++;
	}
	closedir(programs);
	close(groups);
	if (attached == 0) {
		fputs("no program was loaded\n", stderr);
		exit(1);
	}
}

static void open_ring(void)
{
	page = sysconf(_SC_PAGESIZE);
	consumer = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, ring_map, 0);
	/* The data is there twice in a row: no record is cut by the end. */
	producer = mmap(NULL, page + 2 * RING_SIZE, PROT_READ, MAP_SHARED, ring_map, page);
	if (consumer == MAP_FAILED || producer == MAP_FAILED)
		fail("mmap of the ring");
}

static void drop_privileges(void)
{
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0)
		fail("keep capabilities");
	if (setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 || setresuid(NOBODY, NOBODY, NOBODY) < 0)
		fail("become nobody");
	struct {
		uint32_t version;
		int pid;
	} header = { CAPABILITY_VERSION_3, 0 };
	struct {
		uint32_t effective, permitted, inheritable;
	} kept[2] = { 0 };
	kept[1].effective = kept[1].permitted = 1u << (CAPABILITY_BPF - 32);
	if (syscall(SYS_capset, &header, kept) < 0)
		fail("drop capabilities");
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		fail("no new privileges");
}

static void write_all(const char *bytes, size_t size)
{
	while (size > 0) {
		ssize_t written = write(STDOUT_FILENO, bytes, size);
		if (written < 0 && errno == EINTR)
			continue;
		if (written <= 0)
			exit(0);
		bytes += written;
		size -= written;
	}
}

static void flush(void)
{
	write_all(output, output_used);
	output_used = 0;
}

static void put(const void *bytes, size_t size)
{
	if (output_used + size > sizeof output)
		flush();
	memcpy(output + output_used, bytes, size);
	output_used += size;
}

static void put_record(const void *record, uint32_t size)
{
	put(&size, sizeof size);
	put(record, size);
}

static void put_answer(uint32_t kind, uint32_t token)
{
	struct done_event done = { kind, token };
	put_record(&done, sizeof done);
}

static uint64_t nanoseconds(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void put_event(const void *record, uint64_t boot)
{
	union {
		struct event event;
		struct exec_event exec;
		struct connect_event connect;
		struct exit_event exit;
	} copy;
	uint32_t kind = *(const uint32_t *)record;
	size_t size = kind == EVENT_EXEC ? sizeof copy.exec : kind == EVENT_CONNECT ? sizeof copy.connect : sizeof copy.exit;
	memcpy(&copy, record, size);
	copy.event.time += boot;
	if (kind != EVENT_EXEC) {
		put_record(&copy, size);
		return;
	}
	const size_t head = offsetof(struct exec_event, path);
	uint32_t used = head + copy.exec.path_size + copy.exec.arguments_size;
	put(&used, sizeof used);
	put(&copy, head);
	put(copy.exec.path, copy.exec.path_size);
	put(copy.exec.arguments, copy.exec.arguments_size);
}

/* Passes on at most so many records; returns how many there were. */
static int drain(int most)
{
	uint64_t *consumed = (uint64_t *)consumer;
	const uint64_t boot = nanoseconds(CLOCK_REALTIME) - nanoseconds(CLOCK_BOOTTIME);
	int count = 0;
	while (count < most) {
		uint64_t position = *consumed;
		if (position == __atomic_load_n((uint64_t *)producer, __ATOMIC_ACQUIRE))
			break;
		unsigned char *header = producer + page + (position & (RING_SIZE - 1));
		uint32_t size = __atomic_load_n((uint32_t *)header, __ATOMIC_ACQUIRE);
		if (size & RECORD_BUSY)
			break;
		if (!(size & RECORD_DISCARDED))
			put_event(header + RECORD_HEADER, boot);
		size &= ~RECORD_DISCARDED;
		position += (size + RECORD_HEADER + 7) / 8 * 8;
		__atomic_store_n(consumed, position, __ATOMIC_RELEASE);
		count++;
	}
	return count;
}

static void put_lost(const struct sandbox *sandbox)
{
	struct lost_event event = { EVENT_LOST, sandbox->token, sandbox->lost };
	if (sandbox->lost > 0)
		put_record(&event, sizeof event);
}

/* What was lost of each sandbox, if anything was since the last time. */
static void tell_lost(void)
{
	static uint64_t told;
	uint32_t none = 0;
	uint64_t all;
	if (bpf_look_up(lost_map, &none, &all) < 0 || all == told)
		return;
	told = all;
	uint32_t key;
	for (int more = bpf_next_key(sandbox_map, NULL, &key); more == 0; more = bpf_next_key(sandbox_map, &key, &key)) {
		struct sandbox sandbox;
		if (bpf_look_up(sandbox_map, &key, &sandbox) == 0)
			put_lost(&sandbox);
	}
}

static void add(const struct request *request)
{
	struct sandbox sandbox = { .started = request->started, .token = request->token };
	if (bpf_update(sandbox_map, &request->namespace, &sandbox) < 0)
		fail("a sandbox cannot be added");
}

/* A number that another sandbox has by now stays. */
static void remove_sandbox(const struct request *request)
{
	struct sandbox sandbox;
	if (bpf_look_up(sandbox_map, &request->namespace, &sandbox) < 0 || sandbox.token != request->token)
		return;
	drain(INT32_MAX);
	bpf_look_up(sandbox_map, &request->namespace, &sandbox);
	put_lost(&sandbox);
	bpf_delete(sandbox_map, &request->namespace);
}

static void take_requests(void)
{
	static char bytes[64 * sizeof(struct request)];
	static size_t used;
	ssize_t got = read(STDIN_FILENO, bytes + used, sizeof bytes - used);
	if (got < 0 && (errno == EINTR || errno == EAGAIN))
		return;
	if (got <= 0)
		exit(0);
	used += got;
	size_t at = 0;
	for (; used - at >= sizeof(struct request); at += sizeof(struct request)) {
		struct request request;
		memcpy(&request, bytes + at, sizeof request);
		if (request.add)
			add(&request);
		else
			remove_sandbox(&request);
		put_answer(EVENT_DONE, request.token);
	}
	memmove(bytes, bytes + at, used - at);
	used -= at;
}

static _Noreturn void pass_on(void)
{
	int pausing = 0;
	uint64_t looked = 0;
	for (;;) {
		struct pollfd polled[] = {
			{ .fd = STDIN_FILENO, .events = POLLIN },
			{ .fd = pausing ? -1 : ring_map, .events = POLLIN },
		};
		if (poll(polled, 2, pausing ? PAUSE_MS : IDLE_MS) < 0 && errno != EINTR)
			fail("poll");
		if (polled[0].revents != 0)
			take_requests();
		/* A request cuts a pause short, and there are few. */
		pausing = drain(BATCH) > 0;
		uint64_t now = nanoseconds(CLOCK_BOOTTIME);
		if (now - looked >= IDLE_MS * 1000000ull) {
			looked = now;
			tell_lost();
		}
		flush();
	}
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fputs("usage: dsec-audit BPFTOOL OBJECT\n", stderr);
		return 2;
	}
	/* It ends with its pipes: what is meant for the daemon, from a terminal or for all of a service, is not for it. */
	for (size_t at = 0; at < sizeof ignored / sizeof *ignored; at++)
		signal(ignored[at], SIG_IGN);
	int root = mount_nowhere("bpf");
	char directory[32], maps[48], programs[48];
	snprintf(directory, sizeof directory, "/proc/self/fd/%d", root);
	snprintf(maps, sizeof maps, "%s/maps", directory);
	snprintf(programs, sizeof programs, "%s/programs", directory);
	load(argv[1], argv[2], directory);
	ring_map = open_pinned(maps, "ring");
	sandbox_map = open_pinned(maps, "sandboxes");
	lost_map = open_pinned(maps, "lost");
	attach_all(programs);
	close(root);
	open_ring();
	drop_privileges();
	put_answer(EVENT_READY, 0);
	flush();
	pass_on();
}
