/*
 * A stream's output between the process and the host: what was read and not yet acknowledged, by absolute offsets.
 * base <= sent <= end, end - base <= capacity. Memory is taken with the first byte and given back with the last.
 */
#ifndef RING_H
#define RING_H

#include "agent.h"

struct ring {
	uint8_t *bytes;
	uint32_t capacity;
	uint64_t base; /* acknowledged up to here */
	uint64_t sent;
	uint64_t end;
};

/* The next piece to read into, at most the ring's free room; NULL when full, or out of memory (errno ENOMEM). */
uint8_t *ring_room(struct ring *ring, size_t *length);
void ring_filled(struct ring *ring, size_t length);
/* The next piece to send. */
const uint8_t *ring_next(const struct ring *ring, size_t *length);
/* False when the offset was never sent. */
bool ring_ack(struct ring *ring, uint64_t offset);
/* Gives the memory back when nothing is in it. */
void ring_trim(struct ring *ring);
void ring_free(struct ring *ring);

#endif
