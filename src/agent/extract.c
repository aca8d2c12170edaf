#define _GNU_SOURCE
#include "extract.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include "answer.h"
#include "content.h"
#include "descent.h"
#include "path.h"
#include "tar.h"
#include "temporary.h"

static char long_name[TAR_PATH_MAX], long_link[TAR_PATH_MAX];
static char records[TAR_EXTENDED_MAX + 1];
static uint64_t entries, bytes;

/* The next `length` bytes of the archive; its end is an error. */
static void take(uint8_t *to, size_t length)
{
	while (length > 0) {
		const uint8_t *from;
		size_t part = content_next(&from, length);
		if (part == 0)
			answer_refuse(E_ARCHIVE, 0);
		memcpy(to, from, part);
		to += part;
		length -= part;
	}
}

static void skip(uint64_t length)
{
	while (length > 0) {
		const uint8_t *from;
		size_t part = content_next(&from, length < SIZE_MAX ? (size_t)length : SIZE_MAX);
		if (part == 0)
			answer_refuse(E_ARCHIVE, 0);
		length -= part;
	}
}

static uint64_t padding(uint64_t size) { return (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK; }

/* Of an extended header: ended by a zero, which is not counted. */
static char *take_text(char *to, size_t room, uint64_t size)
{
	if (size >= room)
		answer_refuse(E_ARCHIVE, ENAMETOOLONG);
	take((uint8_t *)to, (size_t)size);
	to[size] = 0;
	skip(padding(size));
	return to;
}

static void make_file(int parent, const char *leaf, const struct tar_member *member)
{
	int fd = openat(parent, temporary_name(parent), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	answer_check_entry(fd, member->name);
	for (uint64_t at = 0; at < member->size;) {
		const uint8_t *from;
		uint64_t left = member->size - at;
		size_t part = content_next(&from, left < SIZE_MAX ? (size_t)left : SIZE_MAX);
		if (part == 0)
			answer_refuse_entry(E_ARCHIVE, 0, member->name);
		answer_check_entry(sparse_write(fd, from, part, at), member->name);
		at += part;
	}
	answer_check_entry(sparse_end(fd, member->size), member->name);
	answer_check_entry(descent_describe(fd, member), member->name);
	answer_check_entry(close(fd), member->name);
	answer_check_entry(temporary_place(leaf), member->name);
	bytes += member->size;
	skip(padding(member->size));
}

static void make_symlink(int parent, const char *leaf, const struct tar_member *member)
{
	const char *made = temporary_name(parent);
	answer_check_entry(symlinkat(member->link, parent, made), member->name);
	answer_check_entry(descent_describe_link(parent, made, member), member->name);
	answer_check_entry(temporary_place(leaf), member->name);
}

static void make_link(int parent, const char *leaf, const struct tar_member *member)
{
	char base[BASE_MAX];
	int directory = answer_check_entry(descent_find(member->link, base), member->name);
	answer_check_entry(linkat(directory, base, parent, temporary_name(parent), 0), member->name);
	close(directory);
	answer_check_entry(temporary_place_link(leaf), member->name);
}

static void make_entry(struct tar_member *member)
{
	char leaf[BASE_MAX];
	size_t length = strlen(member->name);
	if (member->type == '0' && length > 0 && member->name[length - 1] == '/')
		member->type = '5';
	if (member->sparse)
		answer_refuse_entry(E_SYSTEM, EOPNOTSUPP, member->name);
	if (strchr("346", member->type)) {
		answer_skip(EOPNOTSUPP, member->name);
		skip(member->size + padding(member->size));
		return;
	}
	int parent = answer_check_entry(descent_parent(member->name, leaf), member->name);
	/* The directory that all goes into is the caller's own. */
	bool top = leaf[0] == 0;
	if (top && member->type != '5')
		answer_refuse_entry(E_SYSTEM, EINVAL, member->name);
	entries++;
	switch (member->type) {
	case '0':
		make_file(parent, leaf, member);
		return;
	case '1':
		make_link(parent, leaf, member);
		break;
	case '2':
		make_symlink(parent, leaf, member);
		break;
	case '5':
		if (!top)
			answer_check_entry(descent_directory(leaf, member), member->name);
		break;
	default:
		answer_refuse_entry(E_SYSTEM, EOPNOTSUPP, member->name);
	}
	/* POSIX lets a hard link have the content once more. */
	skip(member->size + padding(member->size));
}

static void take_archive(void)
{
	uint8_t block[TAR_BLOCK];
	char name[257], link[101];
	struct tar_member member;
	struct tar_extended extended = { 0 };
	for (take(block, sizeof block); !tar_is_zero(block); take(block, sizeof block)) {
		if (!tar_get(block, &member, name, link) || member.size > INT64_MAX)
			answer_refuse(E_ARCHIVE, 0);
		switch (member.type) {
		case 'L':
			extended.name = take_text(long_name, sizeof long_name, member.size);
			break;
		case 'K':
			extended.link = take_text(long_link, sizeof long_link, member.size);
			break;
		case 'x':
			/* Nothing may point into the records of one before. */
			if (extended.name != long_name)
				extended.name = NULL;
			if (extended.link != long_link)
				extended.link = NULL;
			if (!tar_extend(&extended, take_text(records, sizeof records, member.size), (size_t)member.size))
				answer_refuse(E_ARCHIVE, 0);
			break;
		case 'g':
			skip(member.size + padding(member.size));
			break;
		default:
			tar_apply(&member, &extended);
			if (member.size > INT64_MAX)
				answer_refuse(E_ARCHIVE, 0);
			make_entry(&member);
			memset(&extended, 0, sizeof extended);
		}
	}
}

_Noreturn void extract_run(const struct file_request *request)
{
	int top = answer_check(path_open(request->path, O_RDONLY | O_DIRECTORY));
	const struct owner owner = { request->flags & FILE_OWNERS, request->uid, request->gid };
	uint8_t started[13] = { F_STARTED };
	content_begin(request);
	answer(started, sizeof started);
	descent_begin(top, &owner);
	take_archive();
	descent_end();
	for (const uint8_t *rest; content_next(&rest, SIZE_MAX) > 0;)
		;
	content_check(request);
	answer_totals(entries, bytes);
	answer_success(0);
}
