#define _GNU_SOURCE
#include "answer.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { RECORD_FIXED = 33, LINK_MAX = 4096, TAG_RECORD = 32, TAG_SKIPPED, TAG_ENTRY, TAG_TOTALS };

static void (*on_failure)(void);
static uint64_t skipped;

void answer_on_failure(void (*discard)(void)) { on_failure = discard; }

static void discard(void)
{
	if (on_failure)
		on_failure();
	on_failure = NULL;
}

_Noreturn void answer_end(void)
{
	discard();
	_exit(0);
}

void answer(const uint8_t *message, size_t length)
{
	ssize_t sent;
	do
		sent = send(TALK, message, length, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent < 0)
		answer_end();
}

_Noreturn void answer_refuse(enum error_code code, int error)
{
	uint8_t message[9] = { F_ERROR };
	put32(put32(message + 1, code), (uint32_t)error);
	discard();
	answer(message, sizeof message);
	_exit(0);
}

/* `tag`: a number and a name, which is cut where it is too long to be told. */
static void tell(uint8_t tag, uint32_t number, const char *name)
{
	uint8_t message[1 + 9 + LINK_MAX] = { F_FILE_RESULT, tag };
	size_t length = min_size(strlen(name), LINK_MAX);
	put32(put32(message + 2, (uint32_t)length + 4), number);
	memcpy(message + 10, name, length);
	answer(message, 10 + length);
}

_Noreturn void answer_refuse_entry(enum error_code code, int error, const char *entry)
{
	tell(TAG_ENTRY, 0, entry);
	answer_refuse(code, error);
}

int answer_check(int result)
{
	if (result < 0)
		answer_refuse(E_SYSTEM, errno);
	return result;
}

int answer_check_entry(int result, const char *entry)
{
	if (result < 0)
		answer_refuse_entry(E_SYSTEM, errno, entry);
	return result;
}

void answer_skip(int error, const char *entry)
{
	if (skipped++ < SKIPS_TOLD)
		tell(TAG_SKIPPED, (uint32_t)error, entry);
}

void answer_totals(uint64_t entries, uint64_t bytes)
{
	uint8_t message[1 + 5 + 24] = { F_FILE_RESULT, TAG_TOTALS, 24 };
	put64(put64(put64(message + 6, entries), bytes), skipped);
	answer(message, sizeof message);
}

_Noreturn void answer_success(uint64_t bytes)
{
	uint8_t message[23] = { F_EXIT };
	put64(message + 7, bytes);
	answer(message, sizeof message);
	_exit(0);
}

size_t answer_record(uint8_t *at, const struct stat *stat, const char *name, const char *target)
{
	size_t name_length = strlen(name), target_length = target ? strlen(target) : 0;
	uint8_t *start = at;
	*at++ = TAG_RECORD;
	at = put32(at, (uint32_t)(RECORD_FIXED + name_length + target_length));
	*at++ = (uint8_t)(stat->st_mode >> 12);
	at = put32(put32(put32(at, stat->st_mode & 07777), stat->st_uid), stat->st_gid);
	at = put64(at, (uint64_t)stat->st_size);
	at = put64(at, (uint64_t)stat->st_mtim.tv_sec * 1000000000 + (uint64_t)stat->st_mtim.tv_nsec);
	at = put16(at, (uint16_t)name_length);
	memcpy(at, name, name_length);
	at = put16(at + name_length, (uint16_t)target_length);
	if (target)
		memcpy(at, target, target_length);
	return (size_t)(at - start) + target_length;
}

void answer_stat(int fd, const struct stat *stat, const char *path)
{
	static uint8_t message[1 + 5 + RECORD_FIXED + 2 * LINK_MAX] = { F_FILE_RESULT };
	char target[LINK_MAX] = "";
	if (S_ISLNK(stat->st_mode)) {
		ssize_t length = answer_check((int)readlinkat(fd, "", target, sizeof target - 1));
		target[length] = 0;
	}
	answer(message, 1 + answer_record(message + 1, stat, path, target));
}
