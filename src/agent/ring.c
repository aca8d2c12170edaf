#include "ring.h"

#include <errno.h>
#include <stdlib.h>

uint8_t *ring_room(struct ring *ring, size_t *length)
{
	size_t room = ring->capacity - (size_t)(ring->end - ring->base);
	if (room == 0) {
		errno = EAGAIN;
		return NULL;
	}
	if (!ring->bytes) {
		ring->bytes = malloc(ring->capacity);
		if (!ring->bytes) {
			errno = ENOMEM;
			return NULL;
		}
	}
	size_t at = (size_t)(ring->end % ring->capacity);
	*length = min_size(room, ring->capacity - at);
	return ring->bytes + at;
}

void ring_filled(struct ring *ring, size_t length) { ring->end += length; }

const uint8_t *ring_next(const struct ring *ring, size_t *length)
{
	size_t at = (size_t)(ring->sent % ring->capacity);
	*length = min_size((size_t)(ring->end - ring->sent), ring->capacity - at);
	return *length > 0 ? ring->bytes + at : NULL;
}

bool ring_ack(struct ring *ring, uint64_t offset)
{
	if (offset > ring->sent)
		return false;
	if (offset > ring->base)
		ring->base = offset;
	ring_trim(ring);
	return true;
}

void ring_trim(struct ring *ring)
{
	if (ring->base == ring->end)
		ring_free(ring);
}

void ring_free(struct ring *ring)
{
	free(ring->bytes);
	ring->bytes = NULL;
}
