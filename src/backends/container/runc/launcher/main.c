/*
 * dsec-launcher CGROUP.PROCS... -- PROGRAM [ARG...]
 *
 * Joins control groups of the v1 interface and becomes the runtime, which therefore never has to know of them. crun refuses
 * to start where it sees v1 and v2 hierarchies side by side, even when it is to leave them alone: it gets a mount namespace
 * in which there are none to be seen.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#define CANNOT_START 125

static const char *const hierarchies = "/sys/fs/cgroup";

static _Noreturn void fail(const char *what, const char *path)
{
	fprintf(stderr, "dsec-launcher: %s %s: %s\n", what, path, strerror(errno));
	exit(CANNOT_START);
}

/* Before the hierarchies are hidden. "0" is the writer. */
static void join_cgroup(const char *procs)
{
	int fd = open(procs, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		fail("open", procs);
	if (write(fd, "0", 1) != 1)
		fail("join", procs);
	close(fd);
}

static void hide_hierarchies(void)
{
	if (unshare(CLONE_NEWNS) < 0)
		fail("unshare", "mounts");
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		fail("make private", "/");
	if (mount("none", hierarchies, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=4k,mode=755") < 0)
		fail("cover", hierarchies);
}

int main(int argc, char **argv)
{
	int at = 1;
	for (; at < argc && strcmp(argv[at], "--") != 0; at++)
		join_cgroup(argv[at]);
	if (at + 1 >= argc) {
		fputs("usage: dsec-launcher CGROUP.PROCS... -- PROGRAM [ARG...]\n", stderr);
		return CANNOT_START;
	}
	hide_hierarchies();
	execv(argv[at + 1], argv + at + 1);
	fail("execute", argv[at + 1]);
}
