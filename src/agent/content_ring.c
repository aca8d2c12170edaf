#define _GNU_SOURCE
#include "content_ring.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Of linux/futex.h, which musl's compiler does not find. */
enum { FUTEX_WAIT, FUTEX_WAKE };
/* Seconds after which a child that waits looks whether the agent is still there. */
enum { LOOK_AFTER = 1 };
/* Less than that is not worth to be woken for: nobody sees the file before it is whole. */
static size_t piece(const struct content_ring *ring) { return ring->size / 4; }

struct content_ring *content_ring_new(size_t size)
{
	struct content_ring *ring = mmap(NULL, sizeof *ring + size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (ring == MAP_FAILED)
		return NULL;
	ring->size = size;
	return ring;
}

void content_ring_free(struct content_ring *ring)
{
	if (ring)
		munmap(ring, sizeof *ring + ring->size);
}

static void ring_bell(struct content_ring *ring, uint64_t put)
{
	atomic_fetch_add(&ring->bell, 1);
	uint64_t wanted = atomic_load(&ring->wanted);
	if (wanted > 0 && put >= wanted)
		syscall(SYS_futex, &ring->bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void content_ring_put(struct content_ring *ring, const uint8_t *bytes, size_t length)
{
	uint64_t put = atomic_load_explicit(&ring->put, memory_order_relaxed);
	size_t at = (size_t)(put % ring->size), first = min_size(length, ring->size - at);
	memcpy(ring->bytes + at, bytes, first);
	memcpy(ring->bytes, bytes + first, length - first);
	atomic_store(&ring->put, put + length);
	ring_bell(ring, put + length);
}

void content_ring_end(struct content_ring *ring, enum content_state state)
{
	atomic_store(&ring->state, state);
	ring_bell(ring, UINT64_MAX);
}

static void sleep_for(struct content_ring *ring, uint64_t wanted)
{
	const struct timespec time = { LOOK_AFTER, 0 };
	atomic_store(&ring->wanted, wanted);
	uint32_t bell = atomic_load(&ring->bell);
	/* Whatever the agent does after the bell was read changes it, so nothing is missed; nor is what it did before. */
	if (atomic_load(&ring->put) < wanted && atomic_load(&ring->state) == CONTENT_OPEN)
		syscall(SYS_futex, &ring->bell, FUTEX_WAIT, bell, &time, NULL, 0);
	atomic_store(&ring->wanted, 0);
}

ssize_t content_ring_wait(struct content_ring *ring, uint64_t at, const uint8_t **bytes)
{
	static pid_t agent;
	if (agent == 0)
		agent = getppid();
	for (;;) {
		enum content_state state = atomic_load(&ring->state);
		uint64_t put = atomic_load(&ring->put);
		if (state == CONTENT_GONE || getppid() != agent)
			return -1;
		size_t from = (size_t)(at % ring->size), together = ring->size - from;
		size_t worthy = min_size(piece(ring), together);
		if (put - at >= worthy || (state == CONTENT_ENDED && put > at)) {
			*bytes = ring->bytes + from;
			return (ssize_t)min_size((size_t)(put - at), together);
		}
		if (state == CONTENT_ENDED)
			return 0;
		sleep_for(ring, at + worthy);
	}
}
