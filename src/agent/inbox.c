#define _GNU_SOURCE
#include "inbox.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <termios.h>
#include <unistd.h>

static void release_bytes(struct inbox *inbox)
{
	free(inbox->bytes);
	inbox->bytes = NULL;
	inbox->head = inbox->tail = 0;
}

void inbox_drop(struct inbox *inbox)
{
	release_bytes(inbox);
	inbox->handed = inbox->received;
	inbox->waiting = false;
	watch_close(&inbox->to);
}

/* Bytes taken, 0 for none now, -1 when the receiver is gone. */
static ssize_t hand_on(struct inbox *inbox, const uint8_t *bytes, size_t length)
{
	ssize_t taken;
	do
		taken = write(inbox->to.fd, bytes, length);
	while (taken < 0 && errno == EINTR);
	if (taken < 0)
		return errno == EAGAIN ? 0 : -1;
	if (taken > 0) {
		inbox->handed += (uint64_t)taken;
		inbox->last = bytes[taken - 1];
	}
	return taken;
}

/* False when the terminal does not take all of it now. */
static bool end_terminal(struct inbox *inbox)
{
	struct termios mode;
	if (tcgetattr(inbox->to.fd, &mode) < 0 || !(mode.c_lflag & ICANON))
		return true;
	/* In the middle of a line the character only hands the line on; the second one is the end. */
	for (int left = inbox->handed > 0 && inbox->last != '\n' ? 2 : 1; left > 0; left--) {
		ssize_t taken;
		do
			taken = write(inbox->to.fd, &mode.c_cc[VEOF], 1);
		while (taken < 0 && errno == EINTR);
		if (taken == 0 || (taken < 0 && errno == EAGAIN))
			return false;
		inbox->last = '\n';
	}
	return true;
}

static void hand_on_end(struct inbox *inbox)
{
	if (inbox->end == END_TERMINAL && !end_terminal(inbox)) {
		watch_set(&inbox->to, EV_STDIN, inbox->channel, EPOLLOUT);
		return;
	}
	if (inbox->end == END_SHUTDOWN)
		shutdown(inbox->to.fd, SHUT_WR);
	inbox->finished = true;
	watch_close(&inbox->to);
}

void inbox_pump(struct inbox *inbox)
{
	if (inbox->waiting)
		return;
	while (inbox->to.fd >= 0 && inbox->head < inbox->tail) {
		ssize_t taken = hand_on(inbox, inbox->bytes + inbox->head, inbox->tail - inbox->head);
		if (taken < 0) {
			inbox_drop(inbox);
			return;
		}
		if (taken == 0) {
			watch_set(&inbox->to, EV_STDIN, inbox->channel, EPOLLOUT);
			return;
		}
		inbox->head += (size_t)taken;
	}
	release_bytes(inbox);
	watch_set(&inbox->to, EV_STDIN, inbox->channel, 0);
	if (inbox->ended && inbox->to.fd >= 0)
		hand_on_end(inbox);
}

enum inbox_result inbox_put(struct inbox *inbox, const uint8_t *bytes, size_t length)
{
	if (length > inbox->window - (size_t)(inbox->received - inbox->acknowledged))
		return PUT_BEYOND_WINDOW;
	if (inbox->ended)
		return PUT_DONE;
	inbox->received += length;
	if (inbox->to.fd < 0 && !inbox->waiting) {
		inbox->handed = inbox->received;
		return PUT_DONE;
	}
	/* Usually the receiver takes it at once and nothing is kept. */
	if (!inbox->bytes && !inbox->waiting) {
		ssize_t taken = hand_on(inbox, bytes, length);
		if (taken < 0) {
			inbox_drop(inbox);
			return PUT_DONE;
		}
		bytes += taken;
		length -= (size_t)taken;
	}
	if (length == 0)
		return PUT_DONE;
	if (!inbox->bytes) {
		inbox->bytes = malloc(inbox->window);
		inbox->head = inbox->tail = 0;
		if (!inbox->bytes)
			return PUT_NO_MEMORY;
	}
	if (inbox->tail + length > inbox->window) {
		memmove(inbox->bytes, inbox->bytes + inbox->head, inbox->tail - inbox->head);
		inbox->tail -= inbox->head;
		inbox->head = 0;
	}
	memcpy(inbox->bytes + inbox->tail, bytes, length);
	inbox->tail += length;
	inbox_pump(inbox);
	return PUT_DONE;
}

void inbox_finish(struct inbox *inbox)
{
	inbox->ended = true;
	inbox_pump(inbox);
}

bool inbox_ack_due(const struct inbox *inbox)
{
	uint64_t due = inbox->handed - inbox->acknowledged;
	return due > 0 && (due >= inbox->window / 4 || inbox->handed == inbox->received);
}
