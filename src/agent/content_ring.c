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

struct content_ring *content_ring_new(void)
{
	struct content_ring *ring = mmap(NULL, sizeof *ring, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return ring == MAP_FAILED ? NULL : ring;
}

void content_ring_free(struct content_ring *ring)
{
	if (ring)
		munmap(ring, sizeof *ring);
}

static void ring_bell(struct content_ring *ring)
{
	atomic_fetch_add(&ring->bell, 1);
	if (atomic_load(&ring->sleeping))
		syscall(SYS_futex, &ring->bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

void content_ring_put(struct content_ring *ring, const uint8_t *bytes, size_t length)
{
	uint64_t put = atomic_load_explicit(&ring->put, memory_order_relaxed);
	size_t at = (size_t)(put % CONTENT_WINDOW), first = min_size(length, CONTENT_WINDOW - at);
	memcpy(ring->bytes + at, bytes, first);
	memcpy(ring->bytes, bytes + first, length - first);
	atomic_store(&ring->put, put + length);
	ring_bell(ring);
}

void content_ring_end(struct content_ring *ring, enum content_state state)
{
	atomic_store(&ring->state, state);
	ring_bell(ring);
}

static void sleep_on(struct content_ring *ring, uint32_t bell)
{
	const struct timespec time = { LOOK_AFTER, 0 };
	atomic_store(&ring->sleeping, 1);
	/* Whatever the agent did since the bell was read has changed it, so nothing is missed. */
	syscall(SYS_futex, &ring->bell, FUTEX_WAIT, bell, &time, NULL, 0);
	atomic_store(&ring->sleeping, 0);
}

ssize_t content_ring_wait(struct content_ring *ring, uint64_t at, const uint8_t **bytes)
{
	static pid_t agent;
	if (agent == 0)
		agent = getppid();
	for (;;) {
		uint32_t bell = atomic_load(&ring->bell);
		enum content_state state = atomic_load(&ring->state);
		uint64_t put = atomic_load(&ring->put);
		if (state == CONTENT_GONE || getppid() != agent)
			return -1;
		if (put > at) {
			size_t from = (size_t)(at % CONTENT_WINDOW);
			*bytes = ring->bytes + from;
			return (ssize_t)min_size((size_t)(put - at), CONTENT_WINDOW - from);
		}
		if (state == CONTENT_ENDED)
			return 0;
		sleep_on(ring, bell);
	}
}
