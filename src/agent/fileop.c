#define _GNU_SOURCE
#include "fileop.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "path.h"
#include "removal.h"
#include "sha256.h"
#include "tree.h"

enum { CONTENT = 0, TALK = 1, RECORD_FIXED = 33, LINK_MAX = 4096, PARENT_MODE = 0755, FILE_MODE = 0644 };

static uint8_t buffer[1 + DATA_PREFIX + DATA_MAX];

/* What has to go when the operation does not succeed. */
static struct {
	int directory;
	char name[BASE_MAX];
} temporary = { -1, "" };

static void discard(void)
{
	if (temporary.directory >= 0)
		unlinkat(temporary.directory, temporary.name, 0);
	temporary.directory = -1;
}

static _Noreturn void end(void)
{
	discard();
	_exit(0);
}

/* `message[0]` is the type. Ends the operation when nobody listens any more. */
static void say(const uint8_t *message, size_t length)
{
	ssize_t sent;
	do
		sent = send(TALK, message, length, MSG_NOSIGNAL);
	while (sent < 0 && errno == EINTR);
	if (sent < 0)
		end();
}

static _Noreturn void refuse(enum error_code code, int error)
{
	uint8_t message[9] = { F_ERROR };
	put32(put32(message + 1, code), (uint32_t)error);
	discard();
	say(message, sizeof message);
	_exit(0);
}

static int check(int result)
{
	if (result < 0)
		refuse(E_SYSTEM, errno);
	return result;
}

static _Noreturn void succeed(uint64_t bytes)
{
	uint8_t message[23] = { F_EXIT };
	put64(message + 7, bytes);
	say(message, sizeof message);
	_exit(0);
}

/* A record's field; its length. `target` NULL for no link. */
static size_t put_record(uint8_t *at, const struct stat *stat, const char *name, const char *target)
{
	size_t name_length = strlen(name), target_length = target ? strlen(target) : 0;
	uint8_t *start = at;
	*at++ = 32;
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

static void say_stat(int fd, const struct stat *stat, const char *path)
{
	char target[LINK_MAX] = "";
	if (S_ISLNK(stat->st_mode)) {
		ssize_t length = check((int)readlinkat(fd, "", target, sizeof target - 1));
		target[length] = 0;
	}
	buffer[0] = F_FILE_RESULT;
	say(buffer, 1 + put_record(buffer + 1, stat, path, target));
}

/* Looked at before it is opened, as opening alone can wait (a FIFO) or act (a device). */
static int open_regular(const char *path, struct stat *stat)
{
	int seen = check(path_open(path, O_PATH));
	check(fstat(seen, stat));
	if (!S_ISREG(stat->st_mode))
		refuse(E_SYSTEM, S_ISDIR(stat->st_mode) ? EISDIR : EINVAL);
	char same[32];
	snprintf(same, sizeof same, "self/fd/%d", seen);
	return check(proc_open(same, O_RDONLY));
}

static _Noreturn void run_read(const struct file_request *request)
{
	struct stat stat;
	int fd = open_regular(request->path, &stat);
	say_stat(fd, &stat, request->path);
	uint64_t sent = 0;
	while (!request->has_length || sent < request->length) {
		size_t want = DATA_MAX;
		if (request->has_length && request->length - sent < want)
			want = (size_t)(request->length - sent);
		ssize_t got = pread(fd, buffer + 1 + DATA_PREFIX, want, (off_t)(request->offset + sent));
		if (check((int)got) == 0)
			break;
		buffer[0] = F_DATA;
		buffer[1] = 1;
		put64(buffer + 2, sent);
		say(buffer, 1 + DATA_PREFIX + (size_t)got);
		sent += (uint64_t)got;
	}
	succeed(sent);
}

static int open_temporary(int directory)
{
	uint64_t random = 0;
	for (int i = 0; i < 16; i++) {
		(void)!getrandom(&random, sizeof random, GRND_NONBLOCK);
		snprintf(temporary.name, sizeof temporary.name, ".dsec-%016llx.tmp", (unsigned long long)random);
		int fd = openat(directory, temporary.name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
		if (fd >= 0) {
			temporary.directory = directory;
			return fd;
		}
		if (errno != EEXIST)
			break;
	}
	return check(-1);
}

static void write_all(int fd, const uint8_t *bytes, size_t length)
{
	while (length > 0) {
		ssize_t put = check((int)write(fd, bytes, length));
		bytes += put;
		length -= (size_t)put;
	}
}

/* Until the content ends. Ends the operation unless the agent confirms that it was all. */
static uint64_t take_content(int fd, const struct file_request *request, uint8_t digest[32])
{
	struct sha256 hash;
	sha256_init(&hash);
	uint64_t length = 0;
	for (;;) {
		ssize_t got = read(CONTENT, buffer, DATA_MAX);
		if (got < 0 && errno == EINTR)
			continue;
		if (check((int)got) == 0)
			break;
		length += (uint64_t)got;
		if (request->has_length && length > request->length)
			refuse(E_CONTENT, 0);
		write_all(fd, buffer, (size_t)got);
		if (request->has_hash)
			sha256_add(&hash, buffer, (size_t)got);
	}
	uint8_t confirmation;
	if (recv(TALK, &confirmation, 1, 0) != 1)
		end();
	sha256_end(&hash, digest);
	return length;
}

static _Noreturn void run_write(const struct file_request *request)
{
	char base[BASE_MAX];
	int directory = check(request->flags & FILE_NO_FOLLOW ? path_parent(request->path, base)
	                                                       : path_target(request->path, base));
	/* What is replaced gives its mode and owner where the host gave none. */
	struct stat old = { .st_mode = FILE_MODE, .st_uid = geteuid(), .st_gid = getegid() };
	if (fstatat(directory, base, &old, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(old.st_mode) &&
	    !(S_ISLNK(old.st_mode) && request->flags & FILE_NO_FOLLOW))
		refuse(E_SYSTEM, S_ISDIR(old.st_mode) ? EISDIR : EINVAL);
	int fd = open_temporary(directory);
	uint8_t started[13] = { F_STARTED }, digest[32];
	say(started, sizeof started);
	uint64_t length = take_content(fd, request, digest);
	if ((request->has_length && length != request->length) ||
	    (request->has_hash && memcmp(digest, request->hash, sizeof digest) != 0))
		refuse(E_CONTENT, 0);
	uid_t uid = request->has_uid ? request->uid : old.st_uid;
	gid_t gid = request->has_gid ? request->gid : old.st_gid;
	if (uid != geteuid() || gid != getegid())
		check(fchown(fd, uid, gid));
	/* After the owner, as changing that takes set-user-id away. */
	check(fchmod(fd, request->has_mode ? request->mode : S_ISLNK(old.st_mode) ? FILE_MODE : old.st_mode & 07777));
	check(close(fd));
	check(renameat(directory, temporary.name, directory, base));
	temporary.directory = -1;
	succeed(0);
}

static _Noreturn void run_stat(const struct file_request *request)
{
	struct stat stat;
	int fd = check(path_open(request->path, O_PATH | (request->flags & FILE_NO_FOLLOW ? O_NOFOLLOW : 0)));
	check(fstat(fd, &stat));
	say_stat(fd, &stat, request->path);
	succeed(0);
}

static _Noreturn void run_list(const struct file_request *request)
{
	int fd = check(path_open(request->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK));
	DIR *stream = fdopendir(fd);
	if (!stream)
		refuse(E_SYSTEM, errno);
	buffer[0] = F_FILE_RESULT;
	size_t length = 1;
	const struct dirent *entry;
	while ((entry = readdir(stream))) {
		const char *name = entry->d_name;
		struct stat stat;
		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || fstatat(fd, name, &stat, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		char target[LINK_MAX] = "";
		if (S_ISLNK(stat.st_mode)) {
			ssize_t got = readlinkat(fd, name, target, sizeof target - 1);
			target[got > 0 ? got : 0] = 0;
		}
		length += put_record(buffer + length, &stat, name, target);
		if (length + RECORD_FIXED + 5 + BASE_MAX + LINK_MAX > sizeof buffer) {
			say(buffer, length);
			length = 1;
		}
	}
	if (length > 1)
		say(buffer, length);
	succeed(0);
}

static void make_directory(const char *path, uint32_t mode, bool may_exist)
{
	char base[BASE_MAX];
	struct stat stat;
	int directory = path_parent(path, base);
	/* The root. */
	if (directory < 0 && errno == EBUSY && may_exist)
		return;
	check(directory);
	if (mkdirat(directory, base, 0700) == 0) {
		int made = check(openat(directory, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
		check(fchmod(made, mode));
		close(made);
	} else if (errno != EEXIST || !may_exist) {
		refuse(E_SYSTEM, errno);
	} else {
		int there = check(path_open(path, O_PATH));
		check(fstat(there, &stat));
		if (!S_ISDIR(stat.st_mode))
			refuse(E_SYSTEM, ENOTDIR);
		close(there);
	}
	close(directory);
}

static _Noreturn void run_mkdir(const struct file_request *request)
{
	bool parents = request->flags & FILE_RECURSIVE;
	char prefix[PATH_LENGTH_MAX];
	size_t length = strlen(request->path);
	while (length > 1 && request->path[length - 1] == '/')
		length--;
	for (size_t at = 1; parents && at < length; at++) {
		if (request->path[at] != '/' || request->path[at - 1] == '/')
			continue;
		memcpy(prefix, request->path, at);
		prefix[at] = 0;
		make_directory(prefix, PARENT_MODE, true);
	}
	make_directory(request->path, request->has_mode ? request->mode : PARENT_MODE, parents);
	succeed(0);
}

static _Noreturn void run_remove(const struct file_request *request)
{
	char base[BASE_MAX];
	int directory = check(path_parent(request->path, base));
	if (unlinkat(directory, base, 0) == 0)
		succeed(0);
	if (errno != EISDIR && errno != EPERM)
		refuse(E_SYSTEM, errno);
	if (request->flags & FILE_RECURSIVE ? !removal_run(directory, base) : unlinkat(directory, base, AT_REMOVEDIR) < 0)
		refuse(E_SYSTEM, errno);
	succeed(0);
}

static _Noreturn void run_rename(const struct file_request *request)
{
	char from[BASE_MAX], to[BASE_MAX];
	int source = check(path_parent(request->path, from));
	int target = check(path_parent(request->second, to));
	check(renameat(source, from, target, to));
	succeed(0);
}

static _Noreturn void run(const struct file_request *request)
{
	switch (request->operation) {
	case OP_READ:
		run_read(request);
	case OP_WRITE:
		run_write(request);
	case OP_STAT:
		run_stat(request);
	case OP_LIST:
		run_list(request);
	case OP_MKDIR:
		run_mkdir(request);
	case OP_REMOVE:
		run_remove(request);
	case OP_RENAME:
		run_rename(request);
	}
	refuse(E_MALFORMED, 0);
}

pid_t fileop_start(const struct file_fds *fds, const struct file_request *request)
{
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	setsid();
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* Neither the host's connection nor another channel is held open by this. Descriptor 0 is /dev/null otherwise. */
	if ((fds->content >= 0 && dup2(fds->content, CONTENT) < 0) || dup2(fds->talk, TALK) < 0 || !proc_move(2))
		_exit(1);
	syscall(SYS_close_range, 3U, ~0U, 0U);
	oom_reset();
	run(request);
}
