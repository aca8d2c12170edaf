/* Readiness and time: one epoll instance. Events name their target by number, never by pointer, so that an event that
 * was already fetched for something released meanwhile finds nothing. */
#ifndef LOOP_H
#define LOOP_H

#include "agent.h"

enum event {
	EV_LISTEN,
	EV_HOST_IN,
	EV_HOST_OUT,
	EV_CHILD,
	/* of a channel */
	EV_STDIN,
	EV_STDOUT,
	EV_STDERR,
	EV_STATUS,
	EV_ENDED,
	EV_SOURCE,
};

struct watch {
	int fd; /* -1: none */
	uint32_t events;
};

bool loop_init(void);
/* One turn: waits, dispatches, sends. `timeout` in ms, -1 for as long as the deadlines allow. */
void loop_turn(int timeout);
uint64_t loop_now(void); /* CLOCK_MONOTONIC, ms */

/* EPOLLIN and EPOLLOUT to be told about; 0 for none, not even of a hang-up. */
void watch_set(struct watch *watch, enum event event, uint32_t channel, uint32_t events);
/* Takes it out before closing: while a forked child holds a copy, closing alone would not. */
void watch_close(struct watch *watch);

#endif
