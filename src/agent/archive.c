#define _GNU_SOURCE
#include "archive.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "answer.h"
#include "path.h"
#include "tar.h"

/*
 * Every directory on the way is held open and every name is opened in it without following a symlink, so that whoever
 * changes the tree meanwhile can only change what is in it. What cannot be read is left out and told.
 */
enum { DEPTH_MAX = 256, LINKS_STEP = 1024, LINKS_MAX = 1 << 22 };
enum { PROC = 0x9fa0, SYS = 0x62656572, DEVPTS = 0x1cd1, CGROUP = 0x27e0eb, CGROUP2 = 0x63677270 };

static DIR *levels[DEPTH_MAX];
static size_t name_lengths[DEPTH_MAX];
static int depth;
/* Of the entry that is looked at, in the archive. One that proves too long as a directory's has a slash and the end beyond. */
static char name[TAR_PATH_MAX + 1];
static uint64_t entries, bytes, sent;

static uint8_t message[1 + DATA_PREFIX + DATA_MAX];
static size_t filled;

static void flush(void)
{
	if (filled == 0)
		return;
	message[0] = F_DATA;
	message[1] = 1;
	put64(message + 2, sent);
	answer(message, 1 + DATA_PREFIX + filled);
	sent += filled;
	filled = 0;
}

/* Where the next bytes go; at least one fits. */
static uint8_t *room(size_t *length)
{
	if (filled == DATA_MAX)
		flush();
	*length = DATA_MAX - filled;
	return message + 1 + DATA_PREFIX + filled;
}

static void put(const uint8_t *from, size_t length)
{
	while (length > 0) {
		size_t free_bytes;
		uint8_t *at = room(&free_bytes);
		size_t part = min_size(free_bytes, length);
		if (from)
			memcpy(at, from, part);
		else
			memset(at, 0, part);
		filled += part;
		length -= part;
		if (from)
			from += part;
	}
}

static void put_header(const struct stat *stat, char type, uint64_t size, const char *link)
{
	static uint8_t header[TAR_HEADER_MAX];
	const struct tar_member member = {
		.type = type,
		.mode = stat->st_mode & 07777,
		.uid = stat->st_uid,
		.gid = stat->st_gid,
		.size = size,
		.seconds = stat->st_mtim.tv_sec,
		.nanoseconds = (uint32_t)stat->st_mtim.tv_nsec,
		.name = name,
		.link = link,
	};
	put(header, tar_put(header, &member));
	entries++;
}

/* Exactly `size` bytes, as the header has promised them. */
static void put_content(int fd, uint64_t size)
{
	uint64_t left = size;
	while (left > 0) {
		size_t most;
		uint8_t *at = room(&most);
		ssize_t got = read(fd, at, min_size(most, left < SIZE_MAX ? (size_t)left : SIZE_MAX));
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0) {
			answer_skip(got < 0 ? errno : EIO, name);
			for (; left > 0; left -= most) {
				most = min_size(DATA_MAX, left < DATA_MAX ? (size_t)left : DATA_MAX);
				put(NULL, most);
			}
			break;
		}
		filled += (size_t)got;
		left -= (uint64_t)got;
	}
	bytes += size;
	put(NULL, (TAR_BLOCK - size % TAR_BLOCK) % TAR_BLOCK);
}

/* Files that have more than one name, by device and inode. */
static struct linked {
	dev_t device;
	ino_t inode;
	char *name;
} *links;
static size_t link_count, link_room;

static size_t slot_of(const struct linked *table, size_t size, dev_t device, ino_t inode)
{
	size_t at = (size_t)((inode * 0x9E3779B97F4A7C15ULL ^ device) >> 20) & (size - 1);
	while (table[at].name && (table[at].device != device || table[at].inode != inode))
		at = (at + 1) & (size - 1);
	return at;
}

static void grow_links(void)
{
	size_t size = link_room ? 2 * link_room : LINKS_STEP;
	struct linked *table = size <= LINKS_MAX ? calloc(size, sizeof *table) : NULL;
	if (!table)
		answer_refuse(E_LIMIT, ENOMEM);
	for (size_t i = 0; i < link_room; i++)
		if (links[i].name)
			table[slot_of(table, size, links[i].device, links[i].inode)] = links[i];
	free(links);
	links = table;
	link_room = size;
}

/* The name it went under before; NULL for the first time. */
static const char *earlier_name(const struct stat *stat)
{
	if (stat->st_nlink < 2)
		return NULL;
	if (4 * link_count >= 3 * link_room)
		grow_links();
	struct linked *link = &links[slot_of(links, link_room, stat->st_dev, stat->st_ino)];
	if (link->name)
		return link->name;
	*link = (struct linked){ stat->st_dev, stat->st_ino, strdup(name) };
	if (!link->name)
		answer_refuse(E_LIMIT, ENOMEM);
	link_count++;
	return NULL;
}

static void put_file(int directory, const char *base, const struct stat *seen)
{
	struct stat stat;
	const char *earlier = earlier_name(seen);
	if (earlier) {
		put_header(seen, '1', 0, earlier);
		return;
	}
	int fd = openat(directory, base, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &stat) < 0 || !S_ISREG(stat.st_mode)) {
		answer_skip(fd < 0 ? errno : EINVAL, name);
	} else {
		put_header(&stat, '0', (uint64_t)stat.st_size, NULL);
		put_content(fd, (uint64_t)stat.st_size);
	}
	if (fd >= 0)
		close(fd);
}

static void put_symlink(int directory, const char *base, const struct stat *stat)
{
	char target[PATH_MAX];
	ssize_t length = readlinkat(directory, base, target, sizeof target - 1);
	if (length < 0) {
		answer_skip(errno, name);
		return;
	}
	target[length] = 0;
	const char *earlier = earlier_name(stat);
	put_header(stat, earlier ? '1' : '2', 0, earlier ? earlier : target);
}

/* What the kernel makes up has neither end nor meaning elsewhere. */
static bool is_made_up(int fd)
{
	struct statfs fs;
	if (fstatfs(fd, &fs) < 0)
		return false;
	return fs.f_type == PROC || fs.f_type == SYS || fs.f_type == DEVPTS || fs.f_type == CGROUP || fs.f_type == CGROUP2;
}

/* Its entries come next. `length` is that of its own name. */
static void enter(int fd, const struct stat *stat, size_t length)
{
	if (length == 0 || name[length - 1] != '/') {
		name[length++] = '/';
		name[length] = 0;
	}
	put_header(stat, '5', 0, NULL);
	if (depth == DEPTH_MAX || length + BASE_MAX > TAR_PATH_MAX)
		answer_refuse_entry(E_SYSTEM, ENAMETOOLONG, name);
	errno = EOPNOTSUPP;
	levels[depth] = is_made_up(fd) ? NULL : fdopendir(fd);
	if (!levels[depth]) {
		answer_skip(errno, name);
		close(fd);
		return;
	}
	name_lengths[depth++] = length;
}

static void put_entry(int directory, const char *base, size_t length)
{
	struct stat stat;
	if (fstatat(directory, base, &stat, AT_SYMLINK_NOFOLLOW) < 0) {
		answer_skip(errno, name);
	} else if (S_ISDIR(stat.st_mode)) {
		int fd = openat(directory, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
		if (fd < 0 || fstat(fd, &stat) < 0)
			answer_skip(errno, name);
		else
			enter(fd, &stat, length);
	} else if (S_ISREG(stat.st_mode)) {
		put_file(directory, base, &stat);
	} else if (S_ISLNK(stat.st_mode)) {
		put_symlink(directory, base, &stat);
	} else {
		answer_skip(EOPNOTSUPP, name);
	}
}

static void walk(void)
{
	while (depth > 0) {
		DIR *level = levels[depth - 1];
		size_t length = name_lengths[depth - 1];
		errno = 0;
		const struct dirent *entry = readdir(level);
		name[length] = 0;
		if (!entry) {
			if (errno != 0)
				answer_skip(errno, name);
			closedir(level);
			depth--;
		} else if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
			size_t base = strlen(entry->d_name);
			memcpy(name + length, entry->d_name, base + 1);
			put_entry(dirfd(level), entry->d_name, length + base);
		}
	}
}

_Noreturn void archive_run(const struct file_request *request)
{
	char base[BASE_MAX];
	struct stat stat;
	/* The root of the tree is what the path means; below it no symlink is followed. */
	bool follow = !(request->flags & FILE_NO_FOLLOW);
	int fd = answer_check(path_open(request->path, O_PATH | (follow ? 0 : O_NOFOLLOW)));
	answer_check(fstat(fd, &stat));
	memcpy(name, request->name, strlen(request->name) + 1);
	if (S_ISDIR(stat.st_mode)) {
		int open = answer_check(openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
		answer_stat(fd, &stat, request->path);
		enter(open, &stat, strlen(name));
	} else if (!S_ISREG(stat.st_mode) && !S_ISLNK(stat.st_mode)) {
		answer_refuse(E_SYSTEM, EINVAL);
	} else {
		int parent = answer_check(follow ? path_target(request->path, base) : path_parent(request->path, base));
		answer_check(fstatat(parent, base, &stat, AT_SYMLINK_NOFOLLOW));
		answer_stat(fd, &stat, request->path);
		put_entry(parent, base, strlen(name));
	}
	walk();
	put(NULL, 2 * TAR_BLOCK);
	flush();
	answer_totals(entries, bytes);
	answer_success(sent);
}
