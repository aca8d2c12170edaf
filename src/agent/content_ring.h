/* The content that a file operation gets, in memory that the agent shares with the child: it is copied there once and used in place. */
#ifndef CONTENT_RING_H
#define CONTENT_RING_H

#include <stdatomic.h>

#include "agent.h"

enum content_state { CONTENT_OPEN, CONTENT_ENDED, CONTENT_GONE };

struct content_ring {
	_Atomic uint64_t put; /* bytes so far */
	_Atomic uint32_t state;
	_Atomic uint32_t bell; /* what the child sleeps on: changes with everything the agent does */
	_Atomic uint64_t wanted; /* what the child sleeps for: so many bytes, or a change of state; 0 while it works */
	uint8_t check[32]; /* a hash or a sum of everything, as the host has told it */
	size_t check_length;
	size_t size;
	_Alignas(4096) uint8_t bytes[]; /* as writes past the page cache want it */
};

/* For so many bytes that the child has not used yet. NULL when there is no memory. */
struct content_ring *content_ring_new(size_t size);
void content_ring_free(struct content_ring *ring);
/* The agent's side. The caller keeps to the window. */
void content_ring_put(struct content_ring *ring, const uint8_t *bytes, size_t length);
void content_ring_end(struct content_ring *ring, enum content_state state);
/*
 * The child's side: bytes that lie together from `at` on, a piece worth the while unless the content ends; 0 at its end. -1 when the
 * agent gave it up.
 */
ssize_t content_ring_wait(struct content_ring *ring, uint64_t at, const uint8_t **bytes);

#endif
