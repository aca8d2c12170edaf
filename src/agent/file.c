#define _GNU_SOURCE
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "content_ring.h"
#include "fileop.h"
#include "frame.h"
#include "host.h"

static bool read_number(const struct field *field, uint32_t *value, bool *present)
{
	if (field->length != 4)
		return false;
	*value = get32(field->bytes);
	if (present)
		*present = true;
	return true;
}

static bool read_large(const struct field *field, uint64_t *value, bool *present)
{
	if (field->length != 8)
		return false;
	*value = get64(field->bytes);
	if (present)
		*present = true;
	return *value <= INT64_MAX;
}

/* A name of the frame, ended by a zero. NULL for what is none. */
static char *read_name(const struct field *field, char *copy)
{
	if (field->length == 0 || field->length >= 4096 || memchr(field->bytes, 0, field->length))
		return NULL;
	memcpy(copy, field->bytes, field->length);
	copy[field->length] = 0;
	return copy;
}

static char *read_path(const struct field *field, char *copy)
{
	return field->length > 0 && field->bytes[0] == '/' ? read_name(field, copy) : NULL;
}

/* Both ways: an archive goes by one name in its root, and only renaming needs a second path. */
static bool has_its_names(const struct file_request *request)
{
	return (request->operation == OP_RENAME) == (request->second != NULL) &&
	       (request->operation == OP_ARCHIVE) == (request->name != NULL);
}

static bool takes_content(const struct file_request *request)
{
	return request->operation == OP_WRITE || request->operation == OP_EXTRACT;
}

static bool parse_request(const uint8_t *fields, size_t length, struct file_request *request, char paths[3][4096])
{
	const uint8_t *at = fields, *end = fields + length;
	struct field field;
	bool malformed = false, good = true;
	memset(request, 0, sizeof *request);
	while (good && field_next(&at, end, &field, &malformed)) {
		switch (field.tag) {
		case 8:
			good = read_number(&field, &request->window, NULL);
			break;
		case 16:
			good = field.length == 1;
			request->operation = good ? (enum operation)field.bytes[0] : 0;
			break;
		case 17:
			good = (request->path = read_path(&field, paths[0])) != NULL;
			break;
		case 18:
			good = (request->second = read_path(&field, paths[1])) != NULL;
			break;
		case 19:
			good = read_number(&field, &request->mode, &request->has_mode) && request->mode <= 07777;
			break;
		case 20:
			good = read_number(&field, &request->uid, &request->has_uid);
			break;
		case 21:
			good = read_number(&field, &request->gid, &request->has_gid);
			break;
		case 22:
			good = read_large(&field, &request->offset, NULL);
			break;
		case 23:
			good = read_large(&field, &request->length, &request->has_length);
			break;
		case 24:
			good = request->has_hash = field.length == 32;
			if (good)
				memcpy(request->hash, field.bytes, 32);
			break;
		case 25:
			good = read_number(&field, &request->flags, NULL);
			break;
		case 26:
			good = (request->name = read_name(&field, paths[2])) != NULL;
			break;
		case 27:
			good = request->has_mtime = field.length == 8;
			if (good)
				request->mtime = (int64_t)get64(field.bytes);
			break;
		default:
			good = false;
		}
	}
	if (!request->window)
		request->window = takes_content(request) ? CONTENT_WINDOW : WINDOW_DEFAULT;
	return good && !malformed && request->path && request->operation >= OP_READ && request->operation <= OP_EXTRACT &&
	       has_its_names(request) && request->window >= WINDOW_MIN && request->window <= WINDOW_MAX &&
	       request->flags <= FILE_FLAGS;
}

enum error_code file_open(struct channel *channel, const uint8_t *fields, size_t length, int *error)
{
	static char paths[3][4096];
	struct file_request request;
	if (!parse_request(fields, length, &request, paths))
		return E_MALFORMED;
	int talk[2] = { -1, -1 };
	pid_t pid = -1;
	if (takes_content(&request)) {
		request.content = channel->content = content_ring_new(request.window);
		channel->in.window = request.window;
		if (!channel->content)
			return E_LIMIT;
	}
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, talk) == 0)
		pid = fileop_start(talk[1], &request);
	int failure = errno;
	if (talk[1] >= 0)
		close(talk[1]);
	if (pid < 0) {
		if (talk[0] >= 0)
			close(talk[0]);
		*error = failure;
		return failure == ENOMEM ? E_LIMIT : E_SYSTEM;
	}
	fcntl(talk[0], F_SETFL, O_NONBLOCK);
	channel->child = pid;
	channel->window = request.window;
	channel->source.fd = talk[0];
	watch_set(&channel->source, EV_SOURCE, channel->number, EPOLLIN);
	return 0;
}

void file_event(struct channel *channel, enum event event)
{
	(void)event;
	watch_set(&channel->source, EV_SOURCE, channel->number, 0);
	channel_ready(channel);
}

bool file_content(struct channel *channel, const uint8_t *bytes, size_t length)
{
	struct inbox *in = &channel->in;
	if (length > in->window - (size_t)(in->received - in->acknowledged))
		return false;
	if (!in->ended)
		content_ring_put(channel->content, bytes, length);
	in->received += length;
	return true;
}

bool file_end(struct channel *channel, const uint8_t *check, size_t length)
{
	struct content_ring *ring = channel->content;
	if (length > sizeof ring->check)
		return false;
	if (channel->in.ended)
		return true;
	channel->in.ended = true;
	ring->check_length = length;
	memcpy(ring->check, check, length);
	content_ring_end(ring, CONTENT_ENDED);
	return true;
}

/* What the child says of the content it has used. */
static bool acknowledge(struct channel *channel, const uint8_t *said, size_t length)
{
	uint64_t used = length == 8 ? get64(said) : UINT64_MAX;
	if (!channel->content || used > channel->in.received || used < channel->in.acknowledged)
		return false;
	channel->in.acknowledged = channel->in.handed = used;
	return true;
}

bool file_emit(struct channel *channel)
{
	if (channel->source.fd < 0 || channel->window - (channel->sent - channel->acknowledged) < DATA_MAX)
		return false;
	uint8_t type = 0;
	struct iovec parts[2] = { { &type, 1 }, { out_begin(F_DATA, channel->number), DATA_PREFIX + DATA_MAX } };
	struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };
	ssize_t got = recvmsg(channel->source.fd, &message, 0);
	if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
		watch_set(&channel->source, EV_SOURCE, channel->number, EPOLLIN);
		return false;
	}
	size_t length = got > 1 ? (size_t)got - 1 : 0;
	if (type == F_ERROR && length == 8) {
		const uint8_t *said = parts[1].iov_base;
		channel_refuse(channel->number, (enum error_code)get32(said), (int)get32(said + 4));
	} else if (got <= 0 || type == F_ERROR || (type == F_STDIN_ACK && !acknowledge(channel, parts[1].iov_base, length))) {
		/* Killed from inside, or for want of memory. */
		channel_refuse(channel->number, E_SYSTEM, EIO);
	} else {
		out_begin((enum frame_type)type, channel->number);
		out_commit(length);
		if (type == F_DATA)
			channel->sent += length - DATA_PREFIX;
		if (type != F_EXIT)
			return true;
	}
	channel->over = true;
	channel_release(channel);
	return false;
}

void file_release(struct channel *channel)
{
	/* What is being written the child removes itself. */
	if (channel->content)
		content_ring_end(channel->content, CONTENT_GONE);
	else if (channel->child > 0 && !channel->over)
		kill(channel->child, SIGKILL);
	watch_close(&channel->source);
	if (channel->child == 0)
		channel_free(channel);
}
