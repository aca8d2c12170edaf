#define _GNU_SOURCE
#include "removal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "path.h"

/*
 * Iterative, with a bounded number of open directories. What lies deeper is moved up to the first level and met there
 * again, so that depth costs neither memory nor time.
 */
enum { DEPTH_MAX = 48, EMPTY_PASSES_MAX = 100 };

struct level {
	DIR *stream;
	char name[BASE_MAX];
};

static struct level levels[DEPTH_MAX];
static int depth;
static unsigned moved;

static bool enter(int directory, const char *name)
{
	int fd = path_subdirectory(directory, name);
	if (fd < 0)
		return false;
	struct level *level = &levels[depth];
	level->stream = fdopendir(fd);
	if (!level->stream) {
		close(fd);
		return false;
	}
	snprintf(level->name, sizeof level->name, "%s", name);
	depth++;
	return true;
}

static bool move_up(int directory, const char *name)
{
	char other[BASE_MAX];
	int top = dirfd(levels[0].stream);
	do
		snprintf(other, sizeof other, ".dsec-remove-%d-%u", getpid(), moved++);
	while (faccessat(top, other, F_OK, AT_SYMLINK_NOFOLLOW) == 0);
	return renameat(directory, name, top, other) == 0;
}

/* One entry. False with errno when it cannot go. */
static bool remove_entry(int directory, const struct dirent *entry)
{
	const char *name = entry->d_name;
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return true;
	if (entry->d_type != DT_DIR) {
		if (unlinkat(directory, name, 0) == 0 || errno == ENOENT)
			return true;
		if (errno != EISDIR && errno != EPERM)
			return false;
	}
	if (depth == DEPTH_MAX)
		return move_up(directory, name) || errno == ENOENT;
	if (enter(directory, name))
		return true;
	/* It was replaced by something else just now. */
	if (errno == ENOTDIR || errno == ELOOP)
		return unlinkat(directory, name, 0) == 0 || errno == ENOENT;
	return errno == ENOENT;
}

bool removal_run(int directory, const char *name)
{
	int passes = 0;
	if (!enter(directory, name))
		return (errno == ENOTDIR || errno == ELOOP) && unlinkat(directory, name, 0) == 0;
	while (depth > 0) {
		struct level *level = &levels[depth - 1];
		errno = 0;
		const struct dirent *entry = readdir(level->stream);
		if (entry) {
			if (!remove_entry(dirfd(level->stream), entry))
				return false;
			continue;
		}
		if (errno != 0)
			return false;
		int parent = depth > 1 ? dirfd(levels[depth - 2].stream) : directory;
		if (unlinkat(parent, level->name, AT_REMOVEDIR) == 0 || errno == ENOENT) {
			closedir(level->stream);
			depth--;
			passes = 0;
		} else if (errno == ENOTEMPTY && ++passes < EMPTY_PASSES_MAX) {
			/* Moved up, or made meanwhile. */
			rewinddir(level->stream);
		} else {
			return false;
		}
	}
	return true;
}
