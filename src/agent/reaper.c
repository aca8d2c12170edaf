#define _GNU_SOURCE
#include "reaper.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "channel.h"
#include "loop.h"

/* So that a sandbox that makes zombies all the time does not keep the loop from its other work. */
enum { REAP_MAX = 256 };

static struct watch children = { -1, 0 };
static bool pending;

bool reaper_init(void)
{
	sigset_t mask;
	sigemptyset(&mask);
	sigaddset(&mask, SIGCHLD);
	/* No handlers: as process 1 every signal without one is ignored by the kernel, whoever sends it from inside. */
	sigprocmask(SIG_SETMASK, &mask, NULL);
	children.fd = signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK);
	watch_set(&children, EV_CHILD, 0, EPOLLIN);
	pending = true;
	return children.events != 0;
}

void reaper_signalled(void)
{
	struct signalfd_siginfo info;
	(void)!read(children.fd, &info, sizeof info);
	pending = true;
}

bool reaper_pending(void) { return pending; }

void reaper_run(void)
{
	for (int count = 0; pending && count < REAP_MAX; count++) {
		int status;
		pid_t pid = waitpid(-1, &status, WNOHANG);
		if (pid > 0)
			channels_reaped(pid, status);
		else
			pending = false;
	}
}
