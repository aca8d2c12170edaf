#define _GNU_SOURCE
#include "descent.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "answer.h"
#include "path.h"

enum { DEPTH_MAX = 256, PLAIN_MODE = 0755, STEP = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC };

struct level {
	int fd;
	char name[BASE_MAX];
	bool described;
	struct tar_member member; /* without its names */
};

static struct level levels[DEPTH_MAX];
static int depth; /* of the deepest open one; 0 is where all begins */
static int parent;
static struct owner owner;

void descent_begin(int directory, const struct owner *whose)
{
	levels[0].fd = directory;
	owner = *whose;
}

static void owner_of(const struct tar_member *member, uid_t *uid, gid_t *gid)
{
	*uid = owner.kept ? (uid_t)member->uid : owner.uid;
	*gid = owner.kept ? (gid_t)member->gid : owner.gid;
}

static void times_of(const struct tar_member *member, struct timespec times[2])
{
	times[0] = times[1] = (struct timespec){ .tv_sec = member->seconds, .tv_nsec = member->nanoseconds };
}

int descent_describe(int fd, const struct tar_member *member)
{
	uid_t uid;
	gid_t gid;
	struct timespec times[2];
	owner_of(member, &uid, &gid);
	times_of(member, times);
	/* The owner first, as changing it takes set-id bits away. */
	if ((uid != geteuid() || gid != getegid() || owner.kept) && fchown(fd, uid, gid) < 0)
		return -1;
	if (fchmod(fd, member->mode & (owner.kept ? 07777 : 01777)) < 0)
		return -1;
	return futimens(fd, times);
}

int descent_describe_link(int directory, const char *name, const struct tar_member *member)
{
	uid_t uid;
	gid_t gid;
	struct timespec times[2];
	owner_of(member, &uid, &gid);
	times_of(member, times);
	if (fchownat(directory, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0)
		return -1;
	return utimensat(directory, name, times, AT_SYMLINK_NOFOLLOW);
}

/* Everything deeper is done. */
static void leave(int kept)
{
	for (; depth > kept; depth--) {
		struct level *level = &levels[depth];
		if (level->described)
			answer_check_entry(descent_describe(level->fd, &level->member), level->name);
		close(level->fd);
	}
}

static int make(int directory, const char *name)
{
	if (mkdirat(directory, name, 0700) < 0)
		return -1;
	int fd = openat(directory, name, STEP);
	if (fd < 0)
		return -1;
	if ((owner.kept ? 0 : fchown(fd, owner.uid, owner.gid)) < 0 || fchmod(fd, PLAIN_MODE) < 0) {
		close(fd);
		return -1;
	}
	return fd;
}

/* One step down from the deepest; `made` says whether it was missing. */
static int step(const char *name, bool *made)
{
	if (depth + 1 == DEPTH_MAX) {
		errno = ENAMETOOLONG;
		return -1;
	}
	*made = false;
	int fd = openat(levels[depth].fd, name, STEP);
	if (fd < 0 && errno == ENOENT) {
		*made = true;
		fd = make(levels[depth].fd, name);
	}
	if (fd < 0)
		return -1;
	struct level *level = &levels[++depth];
	level->fd = fd;
	level->described = false;
	strcpy(level->name, name);
	return depth;
}

/* The next component, without slashes and dots that mean nothing. False at the end; errno is set for what is not allowed. */
static bool component(const char **at, char name[])
{
	for (;;) {
		while (**at == '/')
			++*at;
		size_t length = strcspn(*at, "/");
		errno = 0;
		if (length == 0)
			return false;
		if (length >= BASE_MAX)
			errno = ENAMETOOLONG;
		else if (length == 2 && (*at)[0] == '.' && (*at)[1] == '.')
			errno = EINVAL;
		if (errno != 0)
			return false;
		memcpy(name, *at, length);
		name[length] = 0;
		*at += length;
		if (strcmp(name, ".") != 0)
			return true;
	}
}

int descent_parent(const char *name, char leaf[])
{
	char next[BASE_MAX];
	int common = 0;
	errno = name[0] == '/' || name[0] == 0 ? EINVAL : 0;
	if (errno != 0)
		return -1;
	if (!component(&name, leaf)) {
		leaf[0] = 0;
		parent = 0;
		return errno == 0 ? levels[0].fd : -1;
	}
	/* While the way is the one of the entry before, its directories are still open. */
	for (bool same = true; component(&name, next); strcpy(leaf, next)) {
		bool made;
		same = same && common < depth && strcmp(levels[common + 1].name, leaf) == 0;
		if (!same)
			leave(common);
		if (!same && step(leaf, &made) < 0)
			return -1;
		common++;
	}
	parent = common;
	return errno == 0 ? levels[common].fd : -1;
}

int descent_directory(const char *leaf, const struct tar_member *member)
{
	bool made = false;
	if (parent == depth || strcmp(levels[parent + 1].name, leaf) != 0) {
		leave(parent);
		if (step(leaf, &made) < 0)
			return -1;
	}
	struct level *level = &levels[parent + 1];
	/* What was there keeps what it is, unless the archive is to be reproduced. */
	if (made || owner.kept) {
		level->described = true;
		level->member = *member;
	}
	return 0;
}

int descent_find(const char *name, char leaf[])
{
	char next[BASE_MAX];
	errno = EINVAL;
	if (name[0] == '/' || !component(&name, leaf))
		return -1;
	int fd = fcntl(levels[0].fd, F_DUPFD_CLOEXEC, 3);
	for (; fd >= 0 && component(&name, next); strcpy(leaf, next)) {
		int deeper = openat(fd, leaf, STEP), failure = errno;
		close(fd);
		fd = deeper;
		errno = failure;
	}
	if (fd >= 0 && errno != 0) {
		close(fd);
		return -1;
	}
	return fd;
}

void descent_end(void) { leave(0); }
