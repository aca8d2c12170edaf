/*
 * dsec-agent: starts and carries processes, connections and files inside a sandbox for the host (PROTOCOL.md).
 *
 *   dsec-agent --listen-fd N   accepts the host on an inherited listening socket
 *   dsec-agent --stdio         the host is at the other end of standard input and output
 *
 * It is process 1 of a sandbox. Root inside must not be able to read, stop or replace it: it is not dumpable, has no
 * signal handlers, and lets no descriptor but 0, 1, 2 through to what it starts.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "child.h"
#include "host.h"
#include "loop.h"
#include "reaper.h"
#include "tree.h"

static int fail(const char *what)
{
	perror(what);
	return 125;
}

static int usage(void)
{
	fputs("usage: dsec-agent --listen-fd N | --stdio\n", stderr);
	return 2;
}

/*
 * Leaves 0, 1, 2 and the channel, so that nothing of whoever started the agent is kept open in the sandbox, and no
 * descriptor opened later is one of the first three. Gives the channel's new descriptors.
 */
static bool take_descriptors(const int channel[2], int taken[2])
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);
	/* High first, then in place: neither may be overwritten before it was copied. */
	for (int i = 0; i < 2; i++)
		taken[i] = fcntl(channel[i], F_DUPFD, 16);
	for (int fd = 0; fd <= 2; fd++)
		if ((fd < 2 || fcntl(fd, F_GETFD) < 0) && dup2(null, fd) < 0)
			return false;
	for (int i = 0; i < 2; i++)
		if (taken[i] < 0 || dup3(taken[i], 3 + i, O_CLOEXEC) < 0)
			return false;
	syscall(SYS_close_range, 5U, ~0U, 0U);
	taken[0] = 3;
	taken[1] = 4;
	return true;
}

/* What it was started with is nobody's business inside. */
static void forget_environment(void)
{
	for (char **variable = environ; *variable; variable++)
		explicit_bzero(*variable, strlen(*variable));
	*environ = NULL;
}

int main(int argc, char **argv)
{
	prctl(PR_SET_DUMPABLE, 0);
	bool stdio = argc == 2 && strcmp(argv[1], "--stdio") == 0;
	bool listen = argc == 3 && strcmp(argv[1], "--listen-fd") == 0;
	if (!stdio && !listen)
		return usage();
	int fds[2] = { stdio ? 0 : atoi(argv[2]), stdio ? 1 : atoi(argv[2]) };
	if (!take_descriptors(fds, fds))
		return fail("dsec-agent: descriptors");
	forget_environment();

	signal(SIGPIPE, SIG_IGN);
	umask(0);
	if (getpid() != 1)
		prctl(PR_SET_CHILD_SUBREAPER, 1);
	/* A process of another saved group may not change the limits of this one, not even as the same user. */
	if (getuid() == 0)
		(void)!setresgid((gid_t)-1, (gid_t)-1, 65534);
	if (chdir("/") < 0)
		return fail("dsec-agent: /");
	child_init();
	proc_init();
	if (!loop_init() || !reaper_init())
		return fail("dsec-agent: event loop");
	if (listen)
		close(fds[1]);
	if (listen ? !host_listen(fds[0]) : !host_stdio(fds[0], fds[1]))
		return fail("dsec-agent: channel");
	for (;;)
		loop_turn(-1);
}
