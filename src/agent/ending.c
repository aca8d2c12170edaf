#define _GNU_SOURCE
#include "ending.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/wait.h>

#include "exec.h"
#include "tracer.h"

/* What an honest tracer may take until it waits for a process that has ended; for one that was killed. */
enum { TRACER_MS = 1000, TRACER_KILLED_MS = 250 };

static void overdue_after(struct exec *exec, uint64_t milliseconds)
{
	uint64_t at = loop_now() + milliseconds;
	if (at < exec->overdue_at)
		exec->overdue_at = at;
	channels_alarm(exec->overdue_at);
}

void ending_watch(struct channel *channel)
{
	channel->exec.end.fd = process_watch(channel->exec.pid);
	watch_set(&channel->exec.end, EV_ENDED, channel->number, EPOLLIN);
}

void ending_event(struct channel *channel)
{
	struct exec *exec = &channel->exec;
	watch_close(&exec->end);
	int status;
	if (exec->reaped)
		return;
	/* The usual case, in which the kernel has told the agent as its parent, too. */
	if (waitpid(exec->pid, &status, WNOHANG) == exec->pid)
		exec_reaped(channel, status);
	else
		overdue_after(exec, TRACER_MS);
}

void ending_killed(struct channel *channel)
{
	if (!channel->exec.reaped)
		overdue_after(&channel->exec, TRACER_KILLED_MS);
}

void ending_timer(struct channel *channel, uint64_t now)
{
	struct exec *exec = &channel->exec;
	if (exec->overdue_at > now) {
		channels_alarm(exec->overdue_at);
		return;
	}
	exec->overdue_at = UINT64_MAX;
	bool ended = process_ended(exec->pid);
	if (ended && exec->tracers_killed) {
		/* Its tracer is out of reach, and its status with it. The process itself is reaped whenever that can be. */
		exec_reaped(channel, SIGKILL);
		return;
	}
	/* While signals are on their way it may just not have got its own yet. */
	if (ended || !exec_is_killing(exec)) {
		tracers_kill(exec->pid);
		exec->tracers_killed = ended;
	}
	overdue_after(exec, TRACER_KILLED_MS);
}
