#define _GNU_SOURCE
#include "host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "channel.h"
#include "frame.h"
#include "loop.h"

enum {
	IN_CAPACITY = 262144,
	/* Holds a HELLO_ACK of all channels; the rest is filled to half only, so that little is moved. */
	OUT_CAPACITY = 262144,
	OUT_HIGH = 131072,
	/* A request is looked at only when its answer fits. */
	ANSWER_MAX = 512,
	ROUNDS = 16,
};

static struct watch listening = { -1, 0 }, in = { -1, 0 }, out = { -1, 0 };
static bool stdio, up, refused;
static struct parser parser;
static _Alignas(4096) uint8_t in_bytes[IN_CAPACITY];
static size_t in_head, in_tail;
static _Alignas(4096) uint8_t out_bytes[OUT_CAPACITY];
static size_t out_head, out_tail;

static void session_end(void)
{
	if (up)
		channels_detach();
	up = false;
	out_head = out_tail = 0;
}

static void host_lost(void)
{
	session_end();
	frame_reset(&parser);
	in_head = in_tail = 0;
	watch_close(&in);
	watch_close(&out);
	/* Standard streams do not come back: nobody can reach what runs here. */
	if (stdio)
		_exit(0);
}

static bool host_open(int fd_in, int fd_out)
{
	in.fd = fd_in;
	out.fd = fd_out;
	if (fd_in < 0 || fd_out < 0) {
		watch_close(&in);
		watch_close(&out);
		return false;
	}
	fcntl(fd_in, F_SETFL, O_NONBLOCK);
	fcntl(fd_out, F_SETFL, O_NONBLOCK);
	watch_set(&in, EV_HOST_IN, 0, EPOLLIN);
	return true;
}

bool host_listen(int fd)
{
	listening.fd = fd;
	fcntl(fd, F_SETFL, O_NONBLOCK);
	watch_set(&listening, EV_LISTEN, 0, EPOLLIN);
	return listening.events != 0;
}

bool host_stdio(int fd_in, int fd_out)
{
	stdio = true;
	/* What an earlier host left in the pipe is no frame of ours until a HELLO says so. */
	parser.seeking = true;
	return host_open(fd_in, fd_out);
}

void host_accept(void)
{
	int fd = accept4(listening.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
	if (fd < 0)
		return;
	/* What the earlier host had sent before the new one came still counts: a RELEASE, say. */
	if (in.fd >= 0)
		host_readable();
	if (in.fd >= 0)
		host_lost();
	/* One descriptor a direction, as with standard streams: each has its own watch. */
	host_open(fd, fcntl(fd, F_DUPFD_CLOEXEC, 3));
}

static void hello(const struct frame *frame)
{
	session_end();
	up = true;
	size_t length = 24 + channels_describe(NULL);
	uint8_t *at = out_frame(F_HELLO_ACK, 0, length);
	at = put32(at, PROTOCOL_VERSION);
	memcpy(at, frame->payload + 4, 16);
	at = put32(at + 16, channels_highest());
	channels_describe(at);
}

static void desynchronised(void)
{
	if (!stdio) {
		host_lost();
		return;
	}
	session_end();
	/* Keep the parser: it is looking for the next HELLO. */
}

static void handle(const struct frame *frame)
{
	/* A connection has one greeting; on standard streams each host brings its own. */
	if (frame->type == F_HELLO && (stdio || !up)) {
		hello(frame);
		return;
	}
	if (!up || frame->type == F_HELLO) {
		parser.seeking = true;
		desynchronised();
		return;
	}
	refused = false;
	if (frame->type == F_PING)
		memcpy(out_frame(F_PONG, frame->channel, 8), frame->payload, 8);
	else if (!channel_frame(frame))
		refused = true;
	if (refused) {
		parser.seeking = true;
		desynchronised();
	}
}

static bool answer_fits(void) { return OUT_CAPACITY - out_tail >= ANSWER_MAX; }

/* False when frames are left that wait for room in the queue. */
static bool process(void)
{
	for (;;) {
		if (!answer_fits())
			return false;
		struct frame frame;
		size_t used;
		enum parse result = frame_parse(&parser, in_bytes + in_head, in_tail - in_head, IN_CAPACITY, &used, &frame);
		in_head += used;
		if (result == PARSE_FRAME) {
			handle(&frame);
			frame_done(&parser);
		} else if (result == PARSE_LOST) {
			desynchronised();
		} else {
			break;
		}
		if (in.fd < 0)
			return true;
	}
	if (in_head > 0) {
		memmove(in_bytes, in_bytes + in_head, in_tail - in_head);
		in_tail -= in_head;
		in_head = 0;
	}
	return true;
}

void host_readable(void)
{
	for (int round = 0; round < 4 && in.fd >= 0; round++) {
		if (!process()) {
			watch_set(&in, EV_HOST_IN, 0, 0);
			return;
		}
		if (in.fd < 0)
			return;
		size_t room = IN_CAPACITY - in_tail;
		ssize_t got = read(in.fd, in_bytes + in_tail, room);
		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			break;
		if (got <= 0) {
			host_lost();
			return;
		}
		in_tail += (size_t)got;
		if (!process()) {
			watch_set(&in, EV_HOST_IN, 0, 0);
			return;
		}
		if ((size_t)got < room)
			break;
	}
	watch_set(&in, EV_HOST_IN, 0, EPOLLIN);
}

size_t out_room(void)
{
	if (!up || out_tail + FRAME_OVERHEAD >= OUT_HIGH)
		return 0;
	return OUT_HIGH - out_tail - FRAME_OVERHEAD;
}

uint8_t *out_begin(enum frame_type type, uint32_t channel)
{
	uint8_t *head = out_bytes + out_tail;
	head[0] = (uint8_t)type;
	put32(head + 1, channel);
	return head + FRAME_HEADER;
}

void out_retype(enum frame_type type) { out_bytes[out_tail] = (uint8_t)type; }

void out_commit(size_t length)
{
	uint8_t *head = out_bytes + out_tail;
	put32(head + 5, (uint32_t)length);
	head[FRAME_HEADER + length] = FRAME_END;
	out_tail += FRAME_OVERHEAD + length;
}

uint8_t *out_frame(enum frame_type type, uint32_t channel, size_t length)
{
	/* Unreachable by the two rules of out_frame's contract; a queue overrun must not become a memory overrun. */
	if (length + FRAME_OVERHEAD > OUT_CAPACITY - out_tail)
		abort();
	uint8_t *payload = out_begin(type, channel);
	out_commit(length);
	return payload;
}

void out_error(uint32_t channel, enum error_code code, int error, const char *message)
{
	size_t length = strlen(message);
	uint8_t *at = out_frame(F_ERROR, channel, 8 + length);
	at = put32(put32(at, code), (uint32_t)error);
	memcpy(at, message, length);
}

/* True when everything was taken. */
static bool flush(void)
{
	while (out_head < out_tail) {
		ssize_t sent = write(out.fd, out_bytes + out_head, out_tail - out_head);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0 && errno == EAGAIN) {
			if (out_head > OUT_HIGH / 2) {
				memmove(out_bytes, out_bytes + out_head, out_tail - out_head);
				out_tail -= out_head;
				out_head = 0;
			}
			watch_set(&out, EV_HOST_OUT, 0, EPOLLOUT);
			return false;
		}
		if (sent <= 0) {
			host_lost();
			return false;
		}
		out_head += (size_t)sent;
	}
	out_head = out_tail = 0;
	watch_set(&out, EV_HOST_OUT, 0, 0);
	return true;
}

void host_send(void)
{
	for (int round = 0; round < ROUNDS && out.fd >= 0; round++) {
		bool more = up && channels_emit();
		bool all = flush();
		/* Frames that waited for room. */
		if (in.fd >= 0 && in.events == 0 && answer_fits()) {
			host_readable();
			more = true;
		}
		if (!all || !more)
			break;
	}
}

void host_trim(void)
{
	if (in_tail == 0)
		madvise(in_bytes, sizeof in_bytes, MADV_DONTNEED);
	if (out_tail == 0)
		madvise(out_bytes, sizeof out_bytes, MADV_DONTNEED);
}
