#define _GNU_SOURCE
#include "content.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "answer.h"
#include "sha256.h"

enum { HOLE = 4096 };

static uint8_t buffer[CONTENT_BUFFER];
static size_t head, tail;
static struct sha256 hash;
static bool hashing;

void content_begin(const struct file_request *request)
{
	hashing = request->has_hash || request->flags & FILE_HASHED;
	sha256_init(&hash);
	/* Fewer switches between the agent and this process; a sandbox that may not have it has the usual size. */
	fcntl(CONTENT, F_SETPIPE_SZ, CONTENT_BUFFER);
}

size_t content_next(const uint8_t **bytes, size_t most)
{
	if (head == tail) {
		ssize_t got;
		do
			got = read(CONTENT, buffer, sizeof buffer);
		while (got < 0 && errno == EINTR);
		head = 0;
		tail = (size_t)answer_check((int)got);
		if (hashing)
			sha256_add(&hash, buffer, tail);
	}
	size_t taken = min_size(most, tail - head);
	*bytes = buffer + head;
	head += taken;
	return taken;
}

void content_check(const struct file_request *request)
{
	uint8_t confirmation[33], digest[32];
	ssize_t length = recv(TALK, confirmation, sizeof confirmation, 0);
	if (length != 1 && length != sizeof confirmation)
		answer_end();
	bool told = length == sizeof confirmation;
	sha256_end(&hash, digest);
	if ((told && !hashing) || (!told && request->flags & FILE_HASHED))
		answer_refuse(E_MALFORMED, 0);
	if ((told && memcmp(digest, confirmation + 1, sizeof digest) != 0) ||
	    (request->has_hash && memcmp(digest, request->hash, sizeof digest) != 0))
		answer_refuse(E_CONTENT, 0);
}

static bool is_zero(const uint8_t *bytes, size_t length)
{
	return bytes[0] == 0 && memcmp(bytes, bytes + 1, length - 1) == 0;
}

/* Bytes from `at` on up to the next multiple of HOLE, or the end. */
static size_t block_length(uint64_t offset, size_t left) { return min_size(HOLE - offset % HOLE, left); }

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
				ssize_t put = pwrite(fd, bytes + done, run - done, (off_t)(offset + done));
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

int sparse_end(int fd, uint64_t length) { return ftruncate(fd, (off_t)length); }
