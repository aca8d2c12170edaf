#define _GNU_SOURCE
#include "exec.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "ending.h"
#include "exec_request.h"
#include "host.h"
#include "output.h"
#include "terminal.h"
#include "tree.h"

/* A terminal hands output on behind its writers' backs; where a background process keeps it open there is no end to
 * wait for, so what has come by then counts as all. */
enum { TERMINAL_SETTLE_MS = 100 };

static void close_all(const int *fds, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* Pipes: [0] is read, [1] written. Fills what the child gets and what the agent keeps. */
static bool open_streams(const struct exec_request *request, struct child_fds *child, int keep[4])
{
	int pair[2];
	if (pipe2(pair, O_CLOEXEC) < 0)
		return false;
	keep[3] = pair[0];
	child->status = pair[1];
	if (request->flags & EXEC_TERMINAL) {
		child->terminal = true;
		if (!terminal_open(request->rows, request->columns, &keep[1], &child->in))
			return false;
		child->out = child->error = child->in;
		keep[0] = fcntl(keep[1], F_DUPFD_CLOEXEC, 3);
		return keep[0] >= 0;
	}
	if (request->flags & EXEC_STDIN) {
		if (pipe2(pair, O_CLOEXEC) < 0)
			return false;
		child->in = pair[0];
		keep[0] = pair[1];
	}
	if (pipe2(pair, O_CLOEXEC) < 0)
		return false;
	keep[1] = pair[0];
	child->out = pair[1];
	if (pipe2(pair, O_CLOEXEC) < 0)
		return false;
	keep[2] = pair[0];
	child->error = pair[1];
	return true;
}

enum error_code exec_open(struct channel *channel, const uint8_t *fields, size_t length, int *error)
{
	struct exec_request request;
	if (!exec_request_parse(fields, length, &request))
		return E_MALFORMED;
	struct child_fds child = { -1, -1, -1, -1, false };
	int keep[4] = { -1, -1, -1, -1 };
	bool opened = open_streams(&request, &child, keep);
	pid_t pid = opened ? child_start(&child, fields, length) : -1;
	int failure = errno;
	const int given[4] = { child.in, child.terminal ? -1 : child.out, child.terminal ? -1 : child.error, child.status };
	close_all(given, 4);
	if (pid < 0) {
		close_all(keep, 4);
		*error = failure;
		return failure == ENOMEM ? E_LIMIT : E_SYSTEM;
	}
	channels_forget_pid(pid);
	for (int i = 0; i < 4; i++)
		if (keep[i] >= 0)
			fcntl(keep[i], F_SETFL, O_NONBLOCK);

	struct exec *exec = &channel->exec;
	exec->pid = pid;
	exec->terminal = child.terminal;
	channel->window = exec->ring[0].capacity = exec->ring[1].capacity = request.window;
	channel->in.to.fd = keep[0];
	channel->in.end = child.terminal ? END_TERMINAL : END_CLOSE;
	exec->eof[1] = child.terminal;
	exec->left[0] = exec->left[1] = UINT64_MAX;
	exec->io[0].fd = keep[1];
	exec->io[1].fd = keep[2];
	exec->status.fd = keep[3];
	ending_watch(channel);
	watch_set(&exec->status, EV_STATUS, channel->number, EPOLLIN);
	watch_set(&exec->io[0], EV_STDOUT, channel->number, EPOLLIN);
	watch_set(&exec->io[1], EV_STDERR, channel->number, EPOLLIN);
	if (request.timeout > 0) {
		uint64_t now = loop_now();
		exec->deadline = request.timeout < UINT64_MAX - now ? now + request.timeout : UINT64_MAX;
		channels_alarm(exec->deadline);
	}
	return 0;
}

static void read_status(struct channel *channel)
{
	struct exec *exec = &channel->exec;
	if (exec->status.fd < 0)
		return;
	uint8_t said[8];
	ssize_t length = read(exec->status.fd, said, sizeof said);
	if (length < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	watch_close(&exec->status);
	if (length == (ssize_t)sizeof said) {
		channel_fail(channel, (enum error_code)get32(said), (int)get32(said + 4));
		return;
	}
	exec->started = true;
	channel->started_due = true;
	channel_ready(channel);
}

/* Of a released exec: until then its process is waited for, or its output read. */
static void free_if_over(struct channel *channel)
{
	const struct exec *exec = &channel->exec;
	if (exec->reaped && (exec->tree_signals | exec->begun_signals) == 0 && exec->io[0].fd < 0 && exec->io[1].fd < 0)
		channel_free(channel);
}

void exec_stream_ended(struct channel *channel)
{
	channel_ready(channel);
	if (channel->released)
		free_if_over(channel);
}

void exec_event(struct channel *channel, enum event event, uint32_t events)
{
	int stream = event - EV_STDOUT;
	if (event == EV_STATUS)
		read_status(channel);
	else if (event == EV_ENDED)
		ending_event(channel);
	else if (!channel->exec.terminal && !(events & EPOLLIN))
		/* Nothing is in the pipe, and nobody can write to it any more. */
		output_end(channel, stream);
	else
		output_read(channel, stream);
}

/* From here on only what is in the pipes now belongs to the exec. */
static void settle(struct channel *channel)
{
	struct exec *exec = &channel->exec;
	exec->settled = true;
	exec->settle_at = UINT64_MAX;
	for (int i = 0; i < 2; i++) {
		int available = 0;
		if (exec->io[i].fd >= 0)
			ioctl(exec->io[i].fd, FIONREAD, &available);
		exec->left[i] = available > 0 ? (uint64_t)available : 0;
	}
	output_read(channel, 0);
	output_read(channel, 1);
	channel_ready(channel);
}

bool exec_is_killing(const struct exec *exec)
{
	return (exec->tree_signals | exec->begun_signals) & 1ULL << (SIGKILL - 1);
}

static void settle_soon(struct channel *channel)
{
	struct exec *exec = &channel->exec;
	if (!exec->reaped || exec->settled || exec_is_killing(exec))
		return;
	if (exec->terminal && exec->io[0].fd >= 0) {
		exec->settle_at = loop_now() + TERMINAL_SETTLE_MS;
		channels_alarm(exec->settle_at);
		output_read(channel, 0);
	} else {
		settle(channel);
	}
}

void exec_reaped(struct channel *channel, int wait_status)
{
	struct exec *exec = &channel->exec;
	read_status(channel);
	exec->reaped = true;
	exec->wait_status = wait_status;
	exec->deadline = exec->overdue_at = UINT64_MAX;
	watch_close(&exec->end);
	exec->group_gone = kill(-exec->pid, 0) != 0;
	inbox_drop(&channel->in);
	if (inbox_ack_due(&channel->in))
		channel_ready(channel);
	if (channel->released) {
		free_if_over(channel);
		return;
	}
	settle_soon(channel);
}

void exec_tree_done(struct channel *channel)
{
	if (channel->released) {
		free_if_over(channel);
		return;
	}
	settle_soon(channel);
}

static void signal_tree(struct channel *channel, int signal)
{
	channel->exec.tree_signals |= 1ULL << (signal - 1);
	tree_request();
	if (signal == SIGKILL)
		ending_killed(channel);
}

/* The process itself stands still until all are found, as it would go on with what comes next and begin more. */
static void signal_begun(struct channel *channel, int signal)
{
	if (!channel->exec.reaped)
		kill(channel->exec.pid, SIGSTOP);
	channel->exec.begun_signals |= 1ULL << (signal - 1);
	tree_request();
}

void exec_signal(struct channel *channel, int signal, uint8_t scope)
{
	struct exec *exec = &channel->exec;
	if (signal == 0 && scope == 3)
		tree_mark(channel);
	if (signal < 1 || signal > 64)
		return;
	if (scope == 0 && exec->begun_signals != 0)
		exec->later_signals |= 1ULL << (signal - 1);
	else if (scope == 0 && !exec->reaped)
		kill(exec->pid, signal);
	else if (scope == 1 && !(exec->reaped && exec->group_gone))
		kill(-exec->pid, signal);
	else if (scope == 2 && !(exec->reaped && exec->group_gone))
		signal_tree(channel, signal);
	else if (scope == 3 && !(exec->reaped && exec->group_gone))
		signal_begun(channel, signal);
}

void exec_resize(struct channel *channel, uint16_t rows, uint16_t columns)
{
	if (channel->exec.terminal && channel->exec.io[0].fd >= 0)
		terminal_resize(channel->exec.io[0].fd, rows, columns);
}

bool exec_ack(struct channel *channel, uint8_t stream, uint64_t offset)
{
	if (stream < 1 || stream > 2 || !ring_ack(&channel->exec.ring[stream - 1], offset))
		return false;
	/* It was left alone while the ring was full. */
	if (channel->exec.io[stream - 1].events == 0)
		output_read(channel, stream - 1);
	channel_ready(channel);
	return true;
}

bool exec_resume(struct channel *channel, const uint64_t offsets[2])
{
	struct ring *ring = channel->exec.ring;
	for (int i = 0; i < 2; i++)
		if (offsets[i] > ring[i].end)
			return false;
	channel->attached = true;
	for (int i = 0; i < 2; i++) {
		/* What was sent but never arrived is sent again; what the host says it has is acknowledged. */
		if (offsets[i] > ring[i].sent)
			ring[i].sent = offsets[i];
		ring_ack(&ring[i], offsets[i]);
		ring[i].sent = ring[i].base;
	}
	channel->started_due = channel->exec.started;
	channel->ack_forced = true;
	channel->exit_sent = false;
	channel_ready(channel);
	output_read(channel, 0);
	output_read(channel, 1);
	return true;
}

void exec_release(struct channel *channel)
{
	struct exec *exec = &channel->exec;
	exec->deadline = exec->settle_at = exec->retry_at = UINT64_MAX;
	inbox_drop(&channel->in);
	/* One that has said why it did not start ends by itself. */
	bool refused = exec->status.fd < 0 && !exec->started;
	bool kill_tree = !exec->reaped && !refused;
	watch_close(&exec->status);
	exec->left[0] = exec->left[1] = 0;
	for (int i = 0; i < 2; i++) {
		ring_free(&exec->ring[i]);
		/* Processes in the background keep somebody who reads. */
		if (kill_tree || channel->code != 0 || !channel_may_linger())
			watch_close(&exec->io[i]);
		else
			watch_set(&exec->io[i], EV_STDOUT + i, channel->number, EPOLLIN);
	}
	if (kill_tree)
		signal_tree(channel, SIGKILL);
	else
		free_if_over(channel);
}

void exec_timer(struct channel *channel, uint64_t now)
{
	struct exec *exec = &channel->exec;
	if (exec->deadline <= now) {
		exec->deadline = UINT64_MAX;
		exec->timed_out = true;
		signal_tree(channel, SIGKILL);
	}
	if (exec->retry_at <= now) {
		exec->retry_at = UINT64_MAX;
		output_read(channel, 0);
		output_read(channel, 1);
	}
	if (exec->settle_at <= now)
		settle(channel);
	channels_alarm(exec->deadline);
	channels_alarm(exec->settle_at);
	channels_alarm(exec->retry_at);
	ending_timer(channel, now);
}

static void emit_exit(struct channel *channel)
{
	const struct exec *exec = &channel->exec;
	bool signalled = WIFSIGNALED(exec->wait_status);
	channel->exit_sent = true;
	uint8_t *at = out_frame(F_EXIT, channel->number, 22);
	*at++ = signalled;
	at = put32(at, (uint32_t)(signalled ? WTERMSIG(exec->wait_status) : WEXITSTATUS(exec->wait_status)));
	*at++ = exec->timed_out;
	put64(put64(at, exec->ring[0].end), exec->ring[1].end);
}

bool exec_emit(struct channel *channel)
{
	struct exec *exec = &channel->exec;
	if (!exec->started)
		return false;
	bool more = false;
	for (int i = 0; i < 2; i++) {
		struct ring *ring = &exec->ring[i];
		size_t length;
		const uint8_t *bytes = ring_next(ring, &length);
		if (!bytes)
			continue;
		length = min_size(length, DATA_MAX);
		uint8_t *at = out_frame(F_DATA, channel->number, DATA_PREFIX + length);
		*at++ = (uint8_t)(i + 1);
		memcpy(put64(at, ring->sent), bytes, length);
		ring->sent += length;
		more |= ring->sent < ring->end;
	}
	/* A terminal whose last holder closed it has nothing left behind, whatever the clock says. */
	if (exec->reaped && !exec->settled && exec->terminal && exec->eof[0] &&
	    !exec_is_killing(exec))
		settle(channel);
	if (!channel->exit_sent && exec->settled && output_drained(exec, 0) && output_drained(exec, 1))
		emit_exit(channel);
	return more;
}
