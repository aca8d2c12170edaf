/* What the host sends to a process, a connection or a file: at most one window, handed on as the receiver takes it. */
#ifndef INBOX_H
#define INBOX_H

#include "loop.h"

enum inbox_end {
	END_CLOSE,    /* a pipe */
	END_TERMINAL, /* the terminal's end-of-file character, where it has one */
	END_SHUTDOWN, /* a connection */
};

struct inbox {
	struct watch to; /* fd -1: everything is dropped, or not open yet */
	uint32_t channel;
	uint32_t window; /* bytes that may be on their way */
	enum inbox_end end;
	bool waiting;  /* the receiver is not there yet */
	bool ended;    /* nothing more comes from the host */
	bool finished; /* and the end was handed on */
	uint8_t last;
	uint8_t *bytes;
	size_t head, tail;
	uint64_t received, handed, acknowledged;
};

enum inbox_result { PUT_DONE, PUT_BEYOND_WINDOW, PUT_NO_MEMORY };

enum inbox_result inbox_put(struct inbox *inbox, const uint8_t *bytes, size_t length);
void inbox_finish(struct inbox *inbox);
/* Hands on what it can. */
void inbox_pump(struct inbox *inbox);
/* Drops what is left and all that comes. */
void inbox_drop(struct inbox *inbox);
/* Whether the host should be told how far it got. */
bool inbox_ack_due(const struct inbox *inbox);

#endif
