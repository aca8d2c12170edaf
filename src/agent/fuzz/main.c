/*
 * Feeds the agent's parser and dispatcher with mutated sessions: `fuzz FRAMES SEED`. Nothing is started, dialled or
 * touched (world.c). Half of the frames go to an agent with standard streams, half to one that accepts; what the
 * latter sends must be frames, byte for byte. Any crash, sanitizer report, broken output or hang makes the exit status
 * non-zero.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../channel.h"
#include "../host.h"
#include "../loop.h"
#include "../user.h"
#include "fuzz.h"

enum { CHANNELS_SPOILT = 1 << 30, PART = 20000, BATCH = 24, FRAME_ROOM = 72000, HANG_SECONDS = 300, PADDING = 262144 + 16 };

static int host = -1;
static struct sockaddr_un address;
static socklen_t address_length = sizeof address.sun_family;
static uint8_t output[1 << 19];
static size_t output_length;
/* How many of each type, to see that the sessions get anywhere. */
static unsigned answers[F_FILE_RESULT - F_HELLO_ACK + 1];
static uint64_t sent, mutated;

static void broken(const char *what)
{
	fprintf(stderr, "fuzz: %s\n", what);
	abort();
}

static void check_output(void)
{
	size_t at = 0;
	while (output_length - at >= FRAME_HEADER) {
		uint8_t *frame = output + at;
		uint32_t channel = get32(frame + 1), length = get32(frame + 5);
		if (frame[0] < F_HELLO_ACK || frame[0] > F_FILE_RESULT || length > PAYLOAD_MAX)
			broken("the agent's output is no frame");
		if (output_length - at < length + FRAME_OVERHEAD)
			break;
		if (frame[FRAME_HEADER + length] != FRAME_END)
			broken("the agent's output lacks an end mark");
		answers[frame[0] - F_HELLO_ACK]++;
		if (frame[0] == F_HELLO_ACK)
			next_channel = get32(frame + 29) + 1;
		if (frame[0] == F_DATA) {
			uint64_t *end = &seen[channel % TRACKED][frame[9] == 2];
			*end = get64(frame + 10) + length - DATA_PREFIX;
		}
		at += length + FRAME_OVERHEAD;
	}
	memmove(output, output + at, output_length - at);
	output_length -= at;
}

/* False when the agent has closed. With standard streams output may be cut, and is not looked at. */
static bool drain(bool stdio)
{
	for (;;) {
		if (stdio)
			output_length = 0;
		ssize_t got = recv(host, output + output_length, sizeof output - output_length, MSG_DONTWAIT);
		if (got < 0 && errno == EAGAIN)
			return true;
		if (got <= 0)
			return false;
		output_length += (size_t)got;
		if (!stdio)
			check_output();
	}
}

static void feed(const uint8_t *bytes, size_t length, bool stdio)
{
	while (length > 0) {
		ssize_t taken = send(host, bytes, length, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (taken < 0 && errno != EAGAIN)
			return;
		if (taken > 0) {
			bytes += taken;
			length -= (size_t)taken;
		}
		loop_turn(0);
		if (!drain(stdio))
			return;
	}
	for (int i = 0; i < 3; i++)
		loop_turn(0);
}

static void say_hello(bool stdio)
{
	uint8_t frame[64] = { F_HELLO, 0, 0, 0, 0, 20, 0, 0, 0, 1 };
	frame[29] = FRAME_END;
	feed(frame, 30, stdio);
}

static void reconnect(void)
{
	if (host >= 0)
		close(host);
	output_length = 0;
	host = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (connect(host, (struct sockaddr *)&address, address_length) < 0)
		broken("cannot connect");
	loop_turn(0);
	say_hello(false);
}

static void open_listening(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	address.sun_family = AF_UNIX;
	/* The kernel finds a free abstract name. */
	if (bind(fd, (struct sockaddr *)&address, address_length) < 0 || listen(fd, 8) < 0)
		broken("cannot listen");
	address_length = sizeof address;
	getsockname(fd, (struct sockaddr *)&address, &address_length);
	if (!host_listen(fd))
		broken("cannot watch");
}

static void open_streams(void)
{
	int pair[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
		broken("cannot pair");
	host = pair[0];
	host_stdio(pair[1], fcntl(pair[1], F_DUPFD_CLOEXEC, 3));
}

/* The other parser of what an attacker writes. */
static void fuzz_users(void)
{
	static const char *const lines[] = { "root:x:0:0:r:/root:/bin/sh\n", "a:b:1:2:c:d\n", "::::::\n", "g:x:4:root,a,,b\n",
		                                 "x:y:99999999999:1\n", "\n", "no colon", ":" };
	char text[512] = "", spec[16];
	for (uint32_t i = rnd(8); i > 0; i--)
		strncat(text, lines[rnd(8)], sizeof text - strlen(text) - 1);
	for (uint32_t i = rnd(4); i > 0 && text[0]; i--)
		text[rnd((uint32_t)strlen(text))] = (char)(1 + rnd(255));
	static const char *const specs[] = { "root", "0", "a:4", "4294967295", ":", "x:", "1:g", "" };
	snprintf(spec, sizeof spec, "%s", specs[rnd(8)]);
	static struct user user;
	user_lookup(spec, text, rnd(4) ? text : NULL, &user);
}

/* A fresh agent's life. */
static void session(bool stdio, uint64_t frames)
{
	static uint8_t batch[BATCH * FRAME_ROOM], padding[PADDING];
	if (!loop_init())
		broken("cannot start the loop");
	if (stdio)
		open_streams();
	else
		open_listening();
	for (size_t i = 0; i < sizeof noise; i++)
		noise[i] = (uint8_t)rnd(256);
	if (stdio)
		say_hello(true);
	else
		reconnect();
	while (mutated < frames && next_channel < CHANNELS_SPOILT) {
		/* From sessions that are broken at once to ones that get far. */
		static const uint32_t rates[] = { 1, 2, 8, 60 };
		uint32_t rate = rates[rnd(4)];
		size_t length = 0;
		for (uint32_t i = 1 + rnd(BATCH); i > 0; i--, sent++) {
			size_t one = make_frame(batch + length);
			bool now = rnd(rate) == 0;
			length += now ? mutate(batch + length, one) : one;
			mutated += now;
		}
		failing_memory = true;
		feed(batch, length, stdio);
		failing_memory = false;
		world_turn();
		fuzz_users();
		bool open = drain(stdio);
		if (stdio && rnd(200) == 0)
			feed(padding, sizeof padding, true);
		if (stdio && rnd(3) == 0)
			say_hello(true);
		if (!stdio && (!open || rnd(100) == 0))
			reconnect();
	}
}

struct totals {
	unsigned answers[F_FILE_RESULT - F_HELLO_ACK + 1];
	uint64_t sent, mutated;
};

/* In parts, each in a process of its own: what one agent piled up does not slow the rest down. */
static int run_half(bool stdio, uint64_t frames, uint64_t seed, struct totals *totals)
{
	for (uint64_t part = 0; totals->mutated < frames; part++) {
		uint64_t left = frames - totals->mutated;
		pid_t pid = fork();
		if (pid == 0) {
			alarm(HANG_SECONDS);
			random_state = (seed * 2 + (uint64_t)stdio + 1) * 0x9E3779B97F4A7C15ULL + part;
			session(stdio, left < PART ? left : PART);
			totals->sent += sent;
			totals->mutated += mutated;
			for (size_t i = 0; i < sizeof answers / sizeof *answers; i++)
				totals->answers[i] += answers[i];
			_exit(0);
		}
		int status;
		if (waitpid(pid, &status, 0) < 0 || status != 0) {
			printf("part %llu of the half with %s ended with status %#x\n", (unsigned long long)part,
			       stdio ? "standard streams" : "a socket", (unsigned)status);
			fflush(stdout);
			return 1;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	uint64_t frames = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000000;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	printf("seed %llu\n", (unsigned long long)seed);
	fflush(stdout);
	signal(SIGPIPE, SIG_IGN);
	struct rlimit files;
	getrlimit(RLIMIT_NOFILE, &files);
	files.rlim_cur = files.rlim_max < 20000 ? files.rlim_max : 20000;
	setrlimit(RLIMIT_NOFILE, &files);
	struct totals *totals = mmap(NULL, 2 * sizeof *totals, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int stdio = 0; stdio < 2; stdio++)
		if (fork() == 0)
			_exit(run_half(stdio, frames / 2, seed, &totals[stdio]));
	int status, bad = 0;
	while (wait(&status) > 0)
		bad |= status;
	for (int i = 0; i <= F_FILE_RESULT - F_HELLO_ACK; i++)
		printf("%u answers %#x\n", totals[0].answers[i], F_HELLO_ACK + i);
	printf("%llu frames, %llu mutated\n", (unsigned long long)(totals[0].sent + totals[1].sent),
	       (unsigned long long)(totals[0].mutated + totals[1].mutated));
	return bad != 0;
}
