#include "output.h"

#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "exec.h"

enum { READ_BUDGET = 131072, MEMORY_RETRY_MS = 100 };

void output_end(struct channel *channel, int stream)
{
	struct exec *exec = &channel->exec;
	exec->eof[stream] = true;
	watch_close(&exec->io[stream]);
	exec_stream_ended(channel);
}

static bool ended(ssize_t got) { return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR); }

/* Nobody is told of these bytes: they came after the end, from processes that were left behind. */
static void read_and_drop(struct channel *channel, int stream)
{
	static uint8_t scratch[4096];
	struct watch *watch = &channel->exec.io[stream];
	for (int i = 0; i < 8; i++) {
		ssize_t got = read(watch->fd, scratch, sizeof scratch);
		if (ended(got)) {
			output_end(channel, stream);
			return;
		}
		if (got < (ssize_t)sizeof scratch)
			break;
	}
	watch_set(watch, EV_STDOUT + stream, channel->number, EPOLLIN);
}

void output_read(struct channel *channel, int stream)
{
	struct exec *exec = &channel->exec;
	struct watch *watch = &exec->io[stream];
	struct ring *ring = &exec->ring[stream];
	size_t budget = READ_BUDGET;
	while (watch->fd >= 0 && budget > 0) {
		if (exec->left[stream] == 0) {
			read_and_drop(channel, stream);
			return;
		}
		size_t room;
		uint8_t *at = ring_room(ring, &room);
		if (!at) {
			watch_set(watch, EV_STDOUT + stream, channel->number, 0);
			if (errno == ENOMEM) {
				exec->retry_at = loop_now() + MEMORY_RETRY_MS;
				channels_alarm(exec->retry_at);
			}
			return;
		}
		room = min_size(room, budget);
		if (exec->left[stream] < room)
			room = (size_t)exec->left[stream];
		ssize_t got = read(watch->fd, at, room);
		if (got <= 0) {
			ring_trim(ring);
			if (ended(got)) {
				output_end(channel, stream);
				return;
			}
			break;
		}
		ring_filled(ring, (size_t)got);
		budget -= (size_t)got;
		if (exec->left[stream] != UINT64_MAX)
			exec->left[stream] -= (uint64_t)got;
		channel_ready(channel);
		if ((size_t)got < room)
			break;
	}
	watch_set(watch, EV_STDOUT + stream, channel->number, EPOLLIN);
}

bool output_drained(const struct exec *exec, int stream)
{
	return (exec->eof[stream] || exec->left[stream] == 0) && exec->ring[stream].base == exec->ring[stream].end;
}
