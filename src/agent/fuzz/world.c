/*
 * Memory that is not always there (linked with --wrap), and what stands for the sandbox: the functions that start, dial
 * and touch things are replaced by ones that answer at random.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../channel.h"
#include "../child.h"
#include "../connect.h"
#include "../fileop.h"
#include "fuzz.h"

enum {
	LIVE_MAX = 32,
	HELD_MAX = 48,
	/* Above any id that Linux gives out, so that a signal to it reaches nobody. */
	FAKE_PID = 0x40000000,
};

uint64_t random_state;
bool failing_memory;

uint32_t rnd(uint32_t below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return below ? (uint32_t)((random_state * 0x2545F4914F6CDD1DULL) >> 33) % below : 0;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);

static bool no_memory(void) { return failing_memory && rnd(200) == 0; }

void *__wrap_malloc(size_t size) { return no_memory() ? NULL : __real_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return no_memory() ? NULL : __real_calloc(count, size); }
void *__wrap_realloc(void *old, size_t size) { return no_memory() ? NULL : __real_realloc(old, size); }

static pid_t next_pid = FAKE_PID;
static struct {
	pid_t pid;
	int held[2]; /* write ends kept open until it "ends" */
} live[LIVE_MAX];
static int held[HELD_MAX];
static unsigned held_next;
uint8_t noise[65536];

static void hold(int fd)
{
	if (held[held_next])
		close(held[held_next]);
	held[held_next] = fd;
	held_next = (held_next + 1) % HELD_MAX;
}

static void child_end(unsigned i)
{
	if (!live[i].pid)
		return;
	pid_t pid = live[i].pid;
	live[i].pid = 0;
	for (int j = 0; j < 2; j++)
		if (live[i].held[j] > 0)
			close(live[i].held[j]);
	channels_reaped(pid, rnd(2) ? (int)rnd(256) << 8 : 1 + (int)rnd(64));
}

static pid_t child_new(int out, int error)
{
	unsigned i = rnd(LIVE_MAX);
	child_end(i);
	live[i].pid = ++next_pid;
	live[i].held[0] = out >= 0 && rnd(2) ? dup(out) : 0;
	live[i].held[1] = error >= 0 && rnd(2) ? dup(error) : 0;
	return live[i].pid;
}

pid_t child_start(const struct child_fds *fds, const uint8_t *fields, size_t length)
{
	(void)fields;
	(void)length;
	if (rnd(32) == 0) {
		errno = rnd(2) ? EAGAIN : ENOMEM;
		return -1;
	}
	if (rnd(4) == 0) {
		uint8_t said[8];
		put32(put32(said, rnd(12)), rnd(140));
		(void)!write(fds->status, said, rnd(16) ? 8 : rnd(8));
	}
	/* A terminal takes less without a reader. */
	if (fds->terminal)
		(void)!write(fds->out, noise, rnd(2000));
	else if (rnd(2))
		(void)!write(fds->out, noise, rnd(60000));
	if (!fds->terminal && rnd(4) == 0)
		(void)!write(fds->error, noise, rnd(60000));
	return child_new(fds->out, fds->terminal ? -1 : fds->error);
}

int connect_start(const struct sockaddr *address, socklen_t length)
{
	(void)address;
	(void)length;
	int pair[2];
	if (rnd(8) == 0) {
		errno = ECONNREFUSED;
		return -1;
	}
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
		return -1;
	(void)!write(pair[1], noise, rnd(60000));
	if (rnd(2))
		hold(pair[1]);
	else
		close(pair[1]);
	return pair[0];
}

pid_t fileop_start(int talk, const struct file_request *request)
{
	if (rnd(32) == 0) {
		errno = EAGAIN;
		return -1;
	}
	uint8_t message[1 + DATA_PREFIX + DATA_MAX] = { F_STARTED };
	static const uint8_t ends[4] = { F_EXIT, F_ERROR, 0, F_ERROR };
	if (request->content)
		(void)!send(talk, message, 13, MSG_DONTWAIT | MSG_NOSIGNAL);
	for (uint32_t i = rnd(4); i > 0; i--) {
		message[0] = rnd(2) ? F_DATA : F_FILE_RESULT;
		message[1] = 1;
		(void)!send(talk, message, 10 + rnd(DATA_MAX), MSG_DONTWAIT | MSG_NOSIGNAL);
	}
	message[0] = ends[rnd(4)];
	if (message[0])
		(void)!send(talk, message, message[0] == F_EXIT ? 23 : 9, MSG_DONTWAIT | MSG_NOSIGNAL);
	if (rnd(2))
		hold(dup(talk));
	return child_new(-1, -1);
}

void child_init(void) {}


void world_turn(void)
{
	child_end(rnd(4 * LIVE_MAX) % LIVE_MAX);
}
