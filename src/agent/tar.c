#include "tar.h"

#include <stdio.h>
#include <stdlib.h>

enum { NAME = 0, MODE = 100, UID = 108, GID = 116, SIZE = 124, MTIME = 136, SUM = 148, TYPE = 156, LINK = 157, MAGIC = 257, PREFIX = 345 };
enum { NAME_LENGTH = 100, PREFIX_LENGTH = 155, SMALL_MAX = 07777777, NANOSECONDS = 1000000000 };
static const uint64_t LARGE_MAX = 077777777777;

static void put_octal(uint8_t *at, size_t digits, uint64_t value)
{
	for (at[digits] = 0; digits-- > 0; value >>= 3)
		at[digits] = (uint8_t)('0' + (value & 7));
}

static uint32_t checksum(const uint8_t *block)
{
	uint32_t sum = 8 * ' ';
	for (size_t i = 0; i < TAR_BLOCK; i++)
		sum += i >= SUM && i < SUM + 8 ? 0 : block[i];
	return sum;
}

static void put_block(uint8_t *block, const struct tar_member *member, uint64_t size)
{
	memset(block, 0, TAR_BLOCK);
	memcpy(block + NAME, member->name, min_size(strlen(member->name), NAME_LENGTH));
	put_octal(block + MODE, 7, member->mode);
	put_octal(block + UID, 7, member->uid > SMALL_MAX ? 0 : member->uid);
	put_octal(block + GID, 7, member->gid > SMALL_MAX ? 0 : member->gid);
	put_octal(block + SIZE, 11, size > LARGE_MAX ? 0 : size);
	put_octal(block + MTIME, 11, member->seconds < 0 || (uint64_t)member->seconds > LARGE_MAX ? 0 : (uint64_t)member->seconds);
	block[TYPE] = (uint8_t)member->type;
	if (member->link)
		memcpy(block + LINK, member->link, min_size(strlen(member->link), NAME_LENGTH));
	memcpy(block + MAGIC, "ustar\00000", 8);
	put_octal(block + SUM, 6, checksum(block));
	block[SUM + 7] = ' ';
}

/* "LENGTH KEY=VALUE\n", where LENGTH counts itself. */
static size_t put_record(uint8_t *at, const char *key, const char *value)
{
	size_t rest = strlen(key) + strlen(value) + 3, digits = 1;
	for (size_t power = 10; rest + digits >= power; power *= 10)
		digits++;
	/* One digit more may have made the number longer. */
	int head = sprintf((char *)at, "%zu %s=", rest + digits, key);
	memcpy(at + head, value, strlen(value));
	at[rest + digits - 1] = '\n';
	return rest + digits;
}

static size_t put_number(uint8_t *at, const char *key, uint64_t value)
{
	char text[24];
	snprintf(text, sizeof text, "%llu", (unsigned long long)value);
	return put_record(at, key, text);
}

static size_t put_time(uint8_t *at, int64_t seconds, uint32_t nanoseconds)
{
	char text[40];
	/* The fraction of a time before 1970 counts the other way. */
	bool before = seconds < 0 && nanoseconds > 0;
	long long whole = before ? seconds + 1 : seconds;
	snprintf(text, sizeof text, "%s%lld.%09u", before && whole == 0 ? "-" : "", whole, before ? NANOSECONDS - nanoseconds : nanoseconds);
	return put_record(at, "mtime", text);
}

static size_t put_extended(uint8_t *at, const struct tar_member *member)
{
	uint8_t *start = at;
	if (strlen(member->name) > NAME_LENGTH)
		at += put_record(at, "path", member->name);
	if (member->link && strlen(member->link) > NAME_LENGTH)
		at += put_record(at, "linkpath", member->link);
	if (member->size > LARGE_MAX)
		at += put_number(at, "size", member->size);
	if (member->uid > SMALL_MAX)
		at += put_number(at, "uid", member->uid);
	if (member->gid > SMALL_MAX)
		at += put_number(at, "gid", member->gid);
	if (member->nanoseconds > 0 || member->seconds < 0 || (uint64_t)member->seconds > LARGE_MAX)
		at += put_time(at, member->seconds, member->nanoseconds);
	return (size_t)(at - start);
}

size_t tar_put(uint8_t *at, const struct tar_member *member)
{
	size_t extended = put_extended(at + TAR_BLOCK, member), length = 0;
	if (extended > 0) {
		const struct tar_member head = { .type = 'x', .mode = 0644, .name = "PaxHeaders/entry" };
		put_block(at, &head, extended);
		size_t padding = (TAR_BLOCK - extended % TAR_BLOCK) % TAR_BLOCK;
		memset(at + TAR_BLOCK + extended, 0, padding);
		length = TAR_BLOCK + extended + padding;
	}
	put_block(at + length, member, member->size);
	return length + TAR_BLOCK;
}

/* Octal digits between spaces or zeros, or, with the first bit set, a binary number. */
static bool get_number(const uint8_t *at, size_t length, uint64_t *value)
{
	*value = 0;
	if (at[0] & 0x80) {
		bool negative = at[0] & 0x40;
		*value = negative ? ~0ULL << 6 | (at[0] & 0x3f) : at[0] & 0x3f;
		for (size_t i = 1; i < length; i++)
			*value = *value << 8 | at[i];
		return true;
	}
	size_t i = 0;
	while (i < length && at[i] == ' ')
		i++;
	for (; i < length && at[i] >= '0' && at[i] <= '7'; i++)
		*value = *value << 3 | (uint64_t)(at[i] - '0');
	return i == length || at[i] == 0 || at[i] == ' ';
}

static size_t get_text(const uint8_t *at, size_t length, char *text)
{
	const uint8_t *end = memchr(at, 0, length);
	size_t taken = end ? (size_t)(end - at) : length;
	memcpy(text, at, taken);
	text[taken] = 0;
	return taken;
}

bool tar_get(const uint8_t block[TAR_BLOCK], struct tar_member *member, char name[257], char link[101])
{
	uint64_t sum, mode, seconds;
	memset(member, 0, sizeof *member);
	if (!get_number(block + SUM, 8, &sum) || sum != checksum(block) || !get_number(block + MODE, 8, &mode) ||
	    !get_number(block + UID, 8, &member->uid) || !get_number(block + GID, 8, &member->gid) ||
	    !get_number(block + SIZE, 12, &member->size) || !get_number(block + MTIME, 12, &seconds))
		return false;
	size_t prefix = 0;
	/* GNU's own format has something else there. */
	if (memcmp(block + MAGIC, "ustar", 6) == 0 && block[PREFIX] != 0) {
		prefix = get_text(block + PREFIX, PREFIX_LENGTH, name);
		name[prefix++] = '/';
	}
	get_text(block + NAME, NAME_LENGTH, name + prefix);
	get_text(block + LINK, NAME_LENGTH, link);
	member->type = block[TYPE] == 0 || block[TYPE] == '7' ? '0' : (char)block[TYPE];
	member->sparse = block[TYPE] == 'S';
	member->mode = (uint32_t)mode & 07777;
	member->seconds = (int64_t)seconds;
	member->name = name;
	member->link = link;
	return true;
}

static void extend_time(struct tar_extended *extended, const char *value)
{
	char *rest;
	long long whole = strtoll(value, &rest, 10);
	uint32_t fraction = 0;
	if (*rest == '.') {
		uint32_t unit = NANOSECONDS / 10;
		for (rest++; *rest >= '0' && *rest <= '9' && unit > 0; rest++, unit /= 10)
			fraction += unit * (uint32_t)(*rest - '0');
	}
	if (value[0] == '-' && fraction > 0) {
		whole--;
		fraction = NANOSECONDS - fraction;
	}
	extended->has_time = true;
	extended->seconds = whole;
	extended->nanoseconds = fraction;
}

static void extend(struct tar_extended *extended, const char *key, char *value)
{
	if (strcmp(key, "path") == 0)
		extended->name = value;
	else if (strcmp(key, "linkpath") == 0)
		extended->link = value;
	else if (strcmp(key, "mtime") == 0)
		extend_time(extended, value);
	else if (strncmp(key, "GNU.sparse.", 11) == 0)
		extended->sparse = true;
	else if (strcmp(key, "size") == 0)
		extended->has_size = true, extended->size = strtoull(value, NULL, 10);
	else if (strcmp(key, "uid") == 0)
		extended->has_uid = true, extended->uid = strtoull(value, NULL, 10);
	else if (strcmp(key, "gid") == 0)
		extended->has_gid = true, extended->gid = strtoull(value, NULL, 10);
}

bool tar_extend(struct tar_extended *extended, char *records, size_t length)
{
	while (length > 0) {
		char *rest;
		if (records[0] < '0' || records[0] > '9')
			return false;
		unsigned long long size = strtoull(records, &rest, 10);
		if (size > length || *rest != ' ' || size < (size_t)(rest - records) + 4 || records[size - 1] != '\n')
			return false;
		char *key = rest + 1, *equals = memchr(key, '=', (size_t)(records + size - key));
		if (!equals)
			return false;
		*equals = 0;
		records[size - 1] = 0;
		/* A zero inside would make two names of one. */
		if (memchr(equals + 1, 0, (size_t)(records + size - 1 - (equals + 1))))
			return false;
		extend(extended, key, equals + 1);
		records += size;
		length -= size;
	}
	return true;
}

void tar_apply(struct tar_member *member, const struct tar_extended *extended)
{
	if (extended->name)
		member->name = extended->name;
	if (extended->link)
		member->link = extended->link;
	if (extended->has_size)
		member->size = extended->size;
	if (extended->has_uid)
		member->uid = extended->uid;
	if (extended->has_gid)
		member->gid = extended->gid;
	if (extended->has_time) {
		member->seconds = extended->seconds;
		member->nanoseconds = extended->nanoseconds;
	}
	member->sparse |= extended->sparse;
}

bool tar_is_zero(const uint8_t block[TAR_BLOCK])
{
	return block[0] == 0 && memcmp(block, block + 1, TAR_BLOCK - 1) == 0;
}
