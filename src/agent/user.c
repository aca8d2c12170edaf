#define _GNU_SOURCE
#include "user.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MAX = 1048576, FIELDS_MAX = 7 };

struct text {
	const char *at;
	size_t length;
};

char *user_read(const char *path)
{
	int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	struct stat stat;
	char *text = NULL;
	if (fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode) && stat.st_size <= FILE_MAX)
		text = malloc((size_t)stat.st_size + 1);
	size_t length = 0;
	while (text && length < (size_t)stat.st_size) {
		ssize_t got = read(fd, text + length, (size_t)stat.st_size - length);
		if (got <= 0)
			break;
		length += (size_t)got;
	}
	if (text)
		text[length] = 0;
	close(fd);
	return text;
}

/* Splits the line at *at by colons, goes to the next one; the number of fields. */
static size_t next_line(const char **at, struct text fields[FIELDS_MAX])
{
	size_t length = strcspn(*at, "\n"), count = 0;
	const char *start = *at, *end = *at + length;
	while (count < FIELDS_MAX) {
		const char *colon = memchr(start, ':', (size_t)(end - start));
		const char *stop = colon ? colon : end;
		fields[count++] = (struct text){ start, (size_t)(stop - start) };
		if (!colon)
			break;
		start = colon + 1;
	}
	*at = *end ? end + 1 : end;
	return count;
}

static bool equals(struct text text, const char *string, size_t length)
{
	return text.length == length && memcmp(text.at, string, length) == 0;
}

static bool number(struct text text, uint32_t *value)
{
	uint64_t sum = 0;
	for (size_t i = 0; i < text.length; i++) {
		if (text.at[i] < '0' || text.at[i] > '9' || i > 10)
			return false;
		sum = sum * 10 + (uint64_t)(text.at[i] - '0');
	}
	*value = (uint32_t)sum;
	/* The last one means "no change" to the system calls. */
	return text.length > 0 && sum < UINT32_MAX;
}

static void copy(char *to, size_t size, struct text text)
{
	size_t length = min_size(text.length, size - 1);
	memcpy(to, text.at, length);
	to[length] = 0;
}

/* A name first, so that a name made of digits is not taken for an id. */
static bool find_user(struct text key, const char *passwd, struct user *user)
{
	uint32_t id = 0, uid, gid;
	bool numeric = number(key, &id);
	for (int by_id = 0; passwd && by_id <= (numeric ? 1 : 0); by_id++) {
		struct text line[FIELDS_MAX];
		for (const char *at = passwd; *at;) {
			if (next_line(&at, line) < 6 || !number(line[2], &uid) || !number(line[3], &gid))
				continue;
			if (by_id ? uid != id : !equals(line[0], key.at, key.length))
				continue;
			user->uid = uid;
			user->gid = gid;
			copy(user->name, sizeof user->name, line[0]);
			copy(user->home, sizeof user->home, line[5]);
			return true;
		}
	}
	user->uid = id;
	user->gid = 0;
	copy(user->name, sizeof user->name, key);
	copy(user->home, sizeof user->home, (struct text){ "/", 1 });
	return numeric;
}

static bool find_group(struct text key, const char *group, gid_t *gid)
{
	struct text line[FIELDS_MAX];
	uint32_t id;
	for (const char *at = group ? group : ""; *at;)
		if (next_line(&at, line) >= 3 && equals(line[0], key.at, key.length) && number(line[2], &id)) {
			*gid = id;
			return true;
		}
	return number(key, gid);
}

static bool lists(struct text members, const char *name)
{
	size_t length = strlen(name);
	while (members.length > 0) {
		const char *comma = memchr(members.at, ',', members.length);
		size_t one = comma ? (size_t)(comma - members.at) : members.length;
		if (equals((struct text){ members.at, one }, name, length))
			return true;
		one += comma ? 1 : 0;
		members.at += one;
		members.length -= one;
	}
	return false;
}

static void find_memberships(const char *group, struct user *user)
{
	struct text line[FIELDS_MAX];
	uint32_t id;
	user->groups[0] = user->gid;
	user->group_count = 1;
	for (const char *at = group ? group : ""; *at && user->group_count < GROUPS_MAX;)
		if (next_line(&at, line) >= 4 && number(line[2], &id) && id != user->gid && lists(line[3], user->name))
			user->groups[user->group_count++] = id;
}

bool user_lookup(const char *spec, const char *passwd, const char *group, struct user *user)
{
	const char *colon = strchr(spec, ':');
	struct text name = { spec, colon ? (size_t)(colon - spec) : strlen(spec) };
	if (!find_user(name, passwd, user))
		return false;
	if (!colon) {
		find_memberships(group, user);
		return true;
	}
	user->groups[0] = user->gid;
	user->group_count = 1;
	if (!find_group((struct text){ colon + 1, strlen(colon + 1) }, group, &user->gid))
		return false;
	user->groups[0] = user->gid;
	return true;
}
