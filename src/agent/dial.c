#define _GNU_SOURCE
#include "dial.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "connect.h"
#include "frame.h"
#include "host.h"

struct address {
	union {
		struct sockaddr any;
		struct sockaddr_in v4;
		struct sockaddr_in6 v6;
	};
	socklen_t length;
};

static bool make_address(const char *host, uint16_t port, struct address *address)
{
	memset(address, 0, sizeof *address);
	if (inet_pton(AF_INET, host, &address->v4.sin_addr) == 1) {
		address->v4.sin_family = AF_INET;
		address->v4.sin_port = htons(port);
		address->length = sizeof address->v4;
		return true;
	}
	if (inet_pton(AF_INET6, host, &address->v6.sin6_addr) == 1) {
		address->v6.sin6_family = AF_INET6;
		address->v6.sin6_port = htons(port);
		address->length = sizeof address->v6;
		return true;
	}
	return false;
}

/* The first failure counts: that there is no IPv6 says nothing. */
static bool try_next(struct channel *channel, int failure)
{
	if (channel->source_error == 0)
		channel->source_error = failure;
	if (!channel->dial.second)
		return false;
	channel->dial.second = false;
	struct address address;
	make_address("::1", channel->dial.port, &address);
	channel->source.fd = connect_start(&address.any, address.length);
	watch_set(&channel->source, EV_SOURCE, channel->number, EPOLLOUT);
	return channel->source.fd >= 0;
}

enum error_code dial_open(struct channel *channel, const uint8_t *fields, size_t length, int *error)
{
	const uint8_t *at = fields, *end = fields + length;
	struct field field;
	bool malformed = false;
	char host[INET6_ADDRSTRLEN] = "";
	while (field_next(&at, end, &field, &malformed)) {
		if (field.tag == 8 && field.length == 4) {
			channel->window = get32(field.bytes);
		} else if (field.tag == 9 && field.length > 0 && field.length < sizeof host) {
			memcpy(host, field.bytes, field.length);
			host[field.length] = 0;
		} else if (field.tag == 10 && field.length == 2) {
			channel->dial.port = get16(field.bytes);
		} else {
			return E_MALFORMED;
		}
	}
	struct address address;
	channel->dial.second = host[0] == 0;
	if (malformed || channel->dial.port == 0 || channel->window < WINDOW_MIN || channel->window > WINDOW_MAX ||
	    !make_address(host[0] ? host : "127.0.0.1", channel->dial.port, &address))
		return E_MALFORMED;
	channel->in.waiting = true;
	channel->in.end = END_SHUTDOWN;
	channel->source.fd = connect_start(&address.any, address.length);
	if (channel->source.fd < 0 && !try_next(channel, errno)) {
		*error = channel->source_error;
		return E_SYSTEM;
	}
	watch_set(&channel->source, EV_SOURCE, channel->number, EPOLLOUT);
	return 0;
}

static void connected(struct channel *channel)
{
	int failure = 0;
	socklen_t length = sizeof failure;
	getsockopt(channel->source.fd, SOL_SOCKET, SO_ERROR, &failure, &length);
	if (failure != 0) {
		watch_close(&channel->source);
		if (!try_next(channel, failure))
			channel_fail(channel, E_SYSTEM, channel->source_error);
		return;
	}
	int writer = fcntl(channel->source.fd, F_DUPFD_CLOEXEC, 3);
	if (writer < 0) {
		channel_fail(channel, E_SYSTEM, errno);
		return;
	}
	channel->source_error = 0;
	channel->dial.connected = true;
	channel->started_due = true;
	channel->in.to.fd = writer;
	channel->in.waiting = false;
	inbox_pump(&channel->in);
}

void dial_event(struct channel *channel, enum event event)
{
	(void)event;
	/* Read when it is the channel's turn; until then there is nothing to be told about. */
	watch_set(&channel->source, EV_SOURCE, channel->number, 0);
	if (!channel->dial.connected)
		connected(channel);
	channel_ready(channel);
}

static void emit_exit(struct channel *channel)
{
	channel->exit_sent = true;
	uint8_t *at = out_frame(F_EXIT, channel->number, 22);
	*at++ = channel->source_error != 0;
	at = put32(at, (uint32_t)channel->source_error);
	*at++ = 0;
	put64(put64(at, channel->sent), 0);
}

bool dial_emit(struct channel *channel)
{
	if (!channel->dial.connected || channel->exit_sent)
		return false;
	size_t credit = channel->window - (size_t)(channel->sent - channel->acknowledged);
	if (credit == 0)
		return false;
	uint8_t *at = out_begin(F_DATA, channel->number);
	ssize_t got = recv(channel->source.fd, at + DATA_PREFIX, min_size(credit, DATA_MAX), 0);
	if (got > 0) {
		*at++ = 1;
		put64(at, channel->sent);
		out_commit(DATA_PREFIX + (size_t)got);
		channel->sent += (uint64_t)got;
		return true;
	}
	if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
		watch_set(&channel->source, EV_SOURCE, channel->number, EPOLLIN);
		return false;
	}
	channel->source_error = got < 0 ? errno : 0;
	emit_exit(channel);
	return false;
}

void dial_release(struct channel *channel)
{
	const struct linger reset = { .l_onoff = 1, .l_linger = 0 };
	if (channel->dial.connected && !channel->in.finished)
		setsockopt(channel->source.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
	channel_free(channel);
}
