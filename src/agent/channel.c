#include "channel.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>

#include "content_ring.h"
#include "dial.h"
#include "exec.h"
#include "file.h"
#include "host.h"

enum { BUCKETS = 256, HIDDEN_MAX = 1024 };

static struct channel *buckets[BUCKETS];
static struct channel *ready_head, **ready_tail = &ready_head;
static uint32_t highest;
static unsigned visible, hidden;
static uint64_t alarm_at = UINT64_MAX;

/* Numbers grow one by one, so their low bits spread evenly. */
static struct channel **slot(uint32_t number)
{
	struct channel **at = &buckets[number % BUCKETS];
	while (*at && (*at)->number != number)
		at = &(*at)->hash_next;
	return at;
}

#define EACH_CHANNEL(channel, next)                                                                                 \
	for (unsigned bucket_ = 0; bucket_ < BUCKETS; bucket_++)                                                        \
		for (struct channel *channel = buckets[bucket_], *next; channel && (next = channel->hash_next, true);       \
		     channel = next)

void channel_ready(struct channel *channel)
{
	if (channel->queued || !channel->attached)
		return;
	channel->queued = true;
	channel->ready_next = NULL;
	*ready_tail = channel;
	ready_tail = &channel->ready_next;
}

static void unqueue(struct channel *channel)
{
	if (!channel->queued)
		return;
	struct channel **at = &ready_head;
	while (*at != channel)
		at = &(*at)->ready_next;
	*at = channel->ready_next;
	if (ready_tail == &channel->ready_next)
		ready_tail = at;
	channel->queued = false;
}

void channel_free(struct channel *channel)
{
	unqueue(channel);
	*slot(channel->number) = channel->hash_next;
	if (channel->released)
		hidden--;
	else
		visible--;
	inbox_drop(&channel->in);
	content_ring_free(channel->content);
	watch_close(&channel->source);
	watch_close(&channel->exec.status);
	watch_close(&channel->exec.end);
	for (int i = 0; i < 2; i++) {
		watch_close(&channel->exec.io[i]);
		ring_free(&channel->exec.ring[i]);
	}
	free(channel);
}

void channel_release(struct channel *channel)
{
	unqueue(channel);
	channel->attached = false;
	channel->released = true;
	visible--;
	hidden++;
	if (channel->kind == KIND_EXEC)
		exec_release(channel);
	else if (channel->kind == KIND_FILE)
		file_release(channel);
	else
		dial_release(channel);
}

void channel_fail(struct channel *channel, enum error_code code, int error)
{
	if (channel->failed)
		return;
	channel->failed = true;
	channel->code = code;
	channel->error = error;
	inbox_drop(&channel->in);
	if (channel->attached)
		channel_ready(channel);
	else if (!channel->released)
		channel_release(channel);
}

static struct channel *channel_new(uint32_t number, enum kind kind)
{
	struct channel *channel = calloc(1, sizeof *channel);
	if (!channel)
		return NULL;
	channel->number = number;
	channel->kind = kind;
	channel->attached = true;
	channel->window = WINDOW_DEFAULT;
	channel->in.channel = number;
	channel->in.window = STDIN_WINDOW;
	channel->in.to.fd = channel->source.fd = channel->exec.status.fd = channel->exec.end.fd = -1;
	channel->exec.io[0].fd = channel->exec.io[1].fd = -1;
	channel->exec.deadline = channel->exec.settle_at = channel->exec.retry_at = UINT64_MAX;
	channel->exec.overdue_at = UINT64_MAX;
	struct channel **at = slot(number);
	channel->hash_next = NULL;
	*at = channel;
	visible++;
	return channel;
}

static void open_channel(const struct frame *frame)
{
	enum error_code code = 0;
	int error = 0;
	if (frame->channel == 0)
		code = E_MALFORMED;
	else if (frame->channel <= highest)
		code = E_CHANNEL_USED;
	else if (frame->dropped || visible >= CHANNELS_MAX)
		code = E_LIMIT;
	if (frame->channel > highest)
		highest = frame->channel;
	struct channel *channel = NULL;
	if (code == 0) {
		enum kind kind = frame->type == F_EXEC ? KIND_EXEC : frame->type == F_DIAL ? KIND_DIAL : KIND_FILE;
		channel = channel_new(frame->channel, kind);
		if (!channel)
			code = E_LIMIT;
		else if (kind == KIND_EXEC)
			code = exec_open(channel, frame->payload, frame->length, &error);
		else if (kind == KIND_DIAL)
			code = dial_open(channel, frame->payload, frame->length, &error);
		else
			code = file_open(channel, frame->payload, frame->length, &error);
	}
	if (code == 0)
		return;
	if (channel)
		channel_free(channel);
	channel_refuse(frame->channel, code, error);
}

static bool acknowledge(struct channel *channel, const uint8_t *payload)
{
	uint8_t stream = payload[0];
	uint64_t offset = get64(payload + 1);
	if (channel->kind == KIND_EXEC)
		return exec_ack(channel, stream, offset);
	if (stream != 1 || offset > channel->sent)
		return false;
	if (offset > channel->acknowledged)
		channel->acknowledged = offset;
	channel_ready(channel);
	return true;
}

static bool resume(uint32_t number, struct channel *channel, const uint8_t *payload)
{
	const uint64_t offsets[2] = { get64(payload), get64(payload + 8) };
	if (!channel || channel->kind != KIND_EXEC)
		channel_refuse(number, E_NO_CHANNEL, 0);
	else if (channel->attached || !exec_resume(channel, offsets))
		channel_refuse(number, E_MALFORMED, 0);
	return true;
}

bool channel_frame(const struct frame *frame)
{
	if (frame->type == F_EXEC || frame->type == F_DIAL || frame->type == F_FILE) {
		open_channel(frame);
		return true;
	}
	struct channel *channel = *slot(frame->channel);
	if (channel && channel->released)
		channel = NULL;
	const uint8_t *payload = frame->payload;
	if (frame->type == F_RESUME)
		return resume(frame->channel, channel, payload);
	/* The host may not yet know that the channel has ended. */
	if (!channel)
		return true;
	switch (frame->type) {
	case F_STDIN:
		if (channel->content)
			return file_content(channel, payload, frame->length);
		switch (inbox_put(&channel->in, payload, frame->length)) {
		case PUT_BEYOND_WINDOW:
			return false;
		case PUT_NO_MEMORY:
			channel_fail(channel, E_LIMIT, 0);
			break;
		case PUT_DONE:
			break;
		}
		if (inbox_ack_due(&channel->in))
			channel_ready(channel);
		return true;
	case F_STDIN_EOF:
		if (channel->content)
			return file_end(channel, payload, frame->length);
		inbox_finish(&channel->in);
		return true;
	case F_SIGNAL:
		if (channel->kind == KIND_EXEC)
			exec_signal(channel, (int)get32(payload), payload[4]);
		return true;
	case F_RESIZE:
		if (channel->kind == KIND_EXEC)
			exec_resize(channel, get16(payload), get16(payload + 2));
		return true;
	case F_ACK:
		return acknowledge(channel, payload);
	case F_RELEASE:
		channel_release(channel);
		return true;
	default:
		return false;
	}
}

void channel_event(uint32_t number, enum event event, uint32_t events)
{
	struct channel *channel = *slot(number);
	if (!channel)
		return;
	if (event == EV_STDIN) {
		inbox_pump(&channel->in);
		if (inbox_ack_due(&channel->in))
			channel_ready(channel);
	} else if (channel->kind == KIND_EXEC) {
		exec_event(channel, event, events);
	} else if (channel->kind == KIND_DIAL) {
		dial_event(channel, event);
	} else {
		file_event(channel, event);
	}
}

bool channels_reaped(pid_t pid, int wait_status)
{
	EACH_CHANNEL(channel, next) {
		if (channel->kind == KIND_EXEC && channel->exec.pid == pid && !channel->exec.reaped) {
			exec_reaped(channel, wait_status);
			return true;
		}
		if (channel->kind == KIND_FILE && channel->child == pid) {
			channel->child = 0;
			if (channel->released)
				channel_free(channel);
			return true;
		}
	}
	return false;
}

void channels_forget_pid(pid_t pid)
{
	EACH_CHANNEL(channel, next)
		if (channel->kind == KIND_EXEC && channel->exec.pid == pid && channel->exec.reaped)
			channel->exec.group_gone = true;
}

void channels_alarm(uint64_t at)
{
	if (at < alarm_at)
		alarm_at = at;
}

uint64_t channels_wake(void) { return alarm_at; }

void channels_timers(void)
{
	if (alarm_at == UINT64_MAX)
		return;
	uint64_t now = loop_now();
	if (alarm_at > now)
		return;
	alarm_at = UINT64_MAX;
	EACH_CHANNEL(channel, next)
		if (channel->kind == KIND_EXEC)
			exec_timer(channel, now);
}

struct channel *channels_tree_due(void)
{
	EACH_CHANNEL(channel, next)
		if (channel->kind == KIND_EXEC && (channel->exec.tree_signals | channel->exec.begun_signals) != 0)
			return channel;
	return NULL;
}

void channels_detach(void)
{
	while (ready_head)
		unqueue(ready_head);
	EACH_CHANNEL(channel, next) {
		if (channel->released)
			continue;
		channel->attached = false;
		if (channel->kind != KIND_EXEC || channel->failed)
			channel_release(channel);
	}
}

size_t channels_describe(uint8_t *at)
{
	size_t length = 0;
	EACH_CHANNEL(channel, next) {
		if (channel->released || channel->failed)
			continue;
		length += 41;
		if (!at)
			continue;
		const struct exec *exec = &channel->exec;
		at = put32(at, channel->number);
		*at++ = exec->reaped;
		at = put32(at, (uint32_t)exec->pid);
		for (int i = 0; i < 2; i++)
			at = put64(put64(at, exec->ring[i].base), exec->ring[i].end);
	}
	return length;
}

bool channel_may_linger(void) { return hidden <= HIDDEN_MAX; }

uint32_t channels_highest(void) { return highest; }

/* True when there is more for it to say. */
static bool emit(struct channel *channel)
{
	if (channel->failed) {
		channel_refuse(channel->number, channel->code, channel->error);
		channel_release(channel);
		return false;
	}
	if (channel->started_due) {
		channel->started_due = false;
		uint8_t *at = out_frame(F_STARTED, channel->number, 12);
		put64(put32(at, (uint32_t)channel->exec.pid), channel->in.received);
	}
	if (inbox_ack_due(&channel->in) || channel->ack_forced) {
		channel->ack_forced = false;
		channel->in.acknowledged = channel->in.handed;
		put64(out_frame(F_STDIN_ACK, channel->number, 8), channel->in.handed);
	}
	switch (channel->kind) {
	case KIND_EXEC:
		return exec_emit(channel);
	case KIND_DIAL:
		return dial_emit(channel);
	default:
		return file_emit(channel);
	}
}

bool channels_emit(void)
{
	/* Room for the small frames and one of data for each of two streams. */
	while (ready_head && out_room() >= 2 * (DATA_MAX + 64) + 256) {
		struct channel *channel = ready_head;
		unqueue(channel);
		uint32_t number = channel->number;
		if (emit(channel) && *slot(number) == channel)
			channel_ready(channel);
	}
	return ready_head != NULL;
}
