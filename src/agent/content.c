#define _GNU_SOURCE
#include "content.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "answer.h"
#include "content_ring.h"
#include "crc32.h"
#include "sha256.h"

enum { HOLE = 4096 };

static struct content_ring *ring;
/* Bytes that were looked at, the end of those that lie ready, and how far the host was told. */
static uint64_t head, tail, told;
static const uint8_t *ready;
static struct sha256 hash;
static uint32_t sum;
static bool hashing, summing, direct;

void content_begin(const struct file_request *request)
{
	ring = request->content;
	hashing = request->has_hash || request->flags & FILE_HASHED;
	summing = request->flags & FILE_SUMMED;
	sha256_init(&hash);
}

static void tell(void)
{
	uint8_t message[9] = { F_STDIN_ACK };
	put64(message + 1, head);
	answer(message, sizeof message);
	told = head;
}

size_t content_next(const uint8_t **bytes, size_t most)
{
	if (head == tail) {
		if (head - told >= ring->size / 8)
			tell();
		ssize_t got = content_ring_wait(ring, head, &ready);
		if (got < 0)
			answer_end();
		size_t part = min_size((size_t)got, ring->size / 4);
		if (hashing)
			sha256_add(&hash, ready, part);
		if (summing)
			sum = crc32_add(sum, ready, part);
		tail += part;
	}
	size_t taken = min_size(most, (size_t)(tail - head));
	*bytes = ready;
	ready += taken;
	head += taken;
	return taken;
}

void content_check(const struct file_request *request)
{
	uint8_t digest[32];
	sha256_end(&hash, digest);
	if (request->has_hash && memcmp(digest, request->hash, sizeof digest) != 0)
		answer_refuse(E_CONTENT, 0);
	/* One of the two at most. */
	bool hashed = request->flags & FILE_HASHED;
	if (ring->check_length != (hashed ? sizeof digest : summing ? sizeof sum : 0))
		answer_refuse(E_MALFORMED, 0);
	if (hashed ? memcmp(digest, ring->check, sizeof digest) != 0 : summing && get32(ring->check) != sum)
		answer_refuse(E_CONTENT, 0);
}

static bool is_zero(const uint8_t *bytes, size_t length)
{
	return bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0;
}

/* Bytes from `at` on up to the next multiple of HOLE, or the end. */
static size_t block_length(uint64_t offset, size_t left) { return min_size(HOLE - offset % HOLE, left); }

void content_direct(int fd) { direct = fcntl(fd, F_SETFL, O_DIRECT) == 0; }

static ssize_t write_part(int fd, const uint8_t *bytes, size_t length, uint64_t offset)
{
	if (direct && ((uintptr_t)bytes | length | offset) % HOLE == 0) {
		ssize_t put = pwrite(fd, bytes, length, (off_t)offset);
		if (put >= 0 || errno != EINVAL)
			return put;
	}
	/* A file's last bytes are no whole block, and some file systems want larger ones. */
	if (direct)
		fcntl(fd, F_SETFL, 0);
	direct = false;
	return pwrite(fd, bytes, length, (off_t)offset);
}

int sparse_write(int fd, const uint8_t *bytes, size_t length, uint64_t offset)
{
	while (length > 0) {
		size_t run = block_length(offset, length);
		if (!is_zero(bytes, run)) {
			while (run < length) {
				size_t more = block_length(offset + run, length - run);
				if (is_zero(bytes + run, more))
					break;
				run += more;
			}
			for (size_t done = 0; done < run;) {
				ssize_t put = write_part(fd, bytes + done, run - done, offset + done);
				if (put < 0 && errno == EINTR)
					continue;
				if (put < 0)
					return -1;
				done += (size_t)put;
			}
		}
		bytes += run;
		offset += run;
		length -= run;
	}
	return 0;
}

int sparse_end(int fd, uint64_t length)
{
	struct stat stat;
	if (fstat(fd, &stat) < 0)
		return -1;
	return (uint64_t)stat.st_size == length ? 0 : ftruncate(fd, (off_t)length);
}
