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
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
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

/* With these taken no descriptor opened later is 0, 1 or 2. */
static bool null_standard_streams(bool replace)
{
	int null = open("/dev/null", O_RDWR);
	while (null >= 0 && null <= 2)
		null = open("/dev/null", O_RDWR);
	if (null < 0)
		return false;
	for (int fd = 0; fd < 2; fd++)
		if (replace && dup2(null, fd) < 0)
			return false;
	close(null);
	return true;
}

int main(int argc, char **argv)
{
	prctl(PR_SET_DUMPABLE, 0);
	bool stdio = argc == 2 && strcmp(argv[1], "--stdio") == 0;
	bool listen = argc == 3 && strcmp(argv[1], "--listen-fd") == 0;
	if (!stdio && !listen)
		return usage();

	signal(SIGPIPE, SIG_IGN);
	umask(0);
	if (getpid() != 1)
		prctl(PR_SET_CHILD_SUBREAPER, 1);
	/* A process of another saved group may not change the limits of this one, not even as the same user. */
	if (getuid() == 0)
		(void)!setresgid((gid_t)-1, (gid_t)-1, 65534);
	if (chdir("/") < 0)
		return fail("dsec-agent: /");

	int in = -1, out = -1;
	if (stdio) {
		in = fcntl(0, F_DUPFD_CLOEXEC, 64);
		out = fcntl(1, F_DUPFD_CLOEXEC, 64);
		if (in < 0 || out < 0)
			return fail("dsec-agent: standard streams");
	}
	if (!null_standard_streams(stdio))
		return fail("dsec-agent: /dev/null");
	child_init();
	proc_init();
	if (!loop_init() || !reaper_init())
		return fail("dsec-agent: event loop");
	if (stdio ? !host_stdio(in, out) : !host_listen(atoi(argv[2])))
		return fail("dsec-agent: channel");
	for (;;)
		loop_turn(-1);
}
