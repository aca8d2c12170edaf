#define _GNU_SOURCE
#include "path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of linux/openat2.h, which musl's compiler does not find. */
enum { NO_XDEV = 1, NO_MAGICLINKS = 2, NO_SYMLINKS = 4, IN_ROOT = 16, LINKS_MAX = 40 };

static int open_how(int directory, const char *path, int flags, uint64_t resolve)
{
	struct {
		uint64_t flags, mode, resolve;
	} how = { (uint64_t)(flags | O_CLOEXEC), 0, resolve };
	int fd = (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
	/* Before Linux 5.6. The root is the sandbox's own in any case. */
	return fd < 0 && errno == ENOSYS ? openat(directory, path, flags | O_CLOEXEC) : fd;
}

int path_open(const char *path, int flags)
{
	int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return -1;
	int fd = open_how(root, path, flags, IN_ROOT | NO_MAGICLINKS);
	int failure = errno;
	close(root);
	errno = failure;
	return fd;
}

int path_subdirectory(int directory, const char *name)
{
	return open_how(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK, NO_XDEV | NO_SYMLINKS);
}

int path_parent(const char *path, char base[BASE_MAX])
{
	size_t end = strlen(path);
	while (end > 1 && path[end - 1] == '/')
		end--;
	size_t start = end;
	while (start > 0 && path[start - 1] != '/')
		start--;
	char directory[PATH_LENGTH_MAX];
	if (end - start >= BASE_MAX || start >= sizeof directory) {
		errno = ENAMETOOLONG;
		return -1;
	}
	memcpy(base, path + start, end - start);
	base[end - start] = 0;
	if (strcmp(base, ".") == 0 || strcmp(base, "..") == 0) {
		errno = EINVAL;
		return -1;
	}
	if (base[0] == 0) {
		errno = EBUSY;
		return -1;
	}
	memcpy(directory, path, start);
	directory[start] = 0;
	return path_open(directory, O_PATH | O_DIRECTORY);
}

int path_target(const char *path, char base[BASE_MAX])
{
	char now[PATH_LENGTH_MAX], link[PATH_LENGTH_MAX];
	if ((size_t)snprintf(now, sizeof now, "%s", path) >= sizeof now) {
		errno = ENAMETOOLONG;
		return -1;
	}
	for (int i = 0; i < LINKS_MAX; i++) {
		int directory = path_parent(now, base);
		if (directory < 0)
			return -1;
		ssize_t length = readlinkat(directory, base, link, sizeof link - 1);
		if (length < 0)
			return directory; /* no symlink, or nothing there */
		close(directory);
		link[length] = 0;
		size_t kept = 0;
		if (link[0] != '/') {
			kept = strlen(now);
			while (kept > 0 && now[kept - 1] == '/')
				kept--;
			while (kept > 0 && now[kept - 1] != '/')
				kept--;
		}
		if (kept + (size_t)length >= sizeof now) {
			errno = ENAMETOOLONG;
			return -1;
		}
		memcpy(now + kept, link, (size_t)length + 1);
	}
	errno = ELOOP;
	return -1;
}
