#define _GNU_SOURCE
#include "fileop.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "answer.h"
#include "archive.h"
#include "content.h"
#include "extract.h"
#include "path.h"
#include "removal.h"
#include "temporary.h"
#include "tree.h"

enum { LINK_MAX = 4096, RECORD_MAX = 38 + BASE_MAX + LINK_MAX, PARENT_MODE = 0755, FILE_MODE = 0644, NANOSECONDS = 1000000000 };

static uint8_t buffer[1 + DATA_PREFIX + DATA_MAX];

/* Looked at before it is opened, as opening alone can wait (a FIFO) or act (a device). */
static int open_regular(const char *path, struct stat *stat)
{
	int seen = answer_check(path_open(path, O_PATH));
	answer_check(fstat(seen, stat));
	if (!S_ISREG(stat->st_mode))
		answer_refuse(E_SYSTEM, S_ISDIR(stat->st_mode) ? EISDIR : EINVAL);
	char same[32];
	snprintf(same, sizeof same, "self/fd/%d", seen);
	return answer_check(proc_open(same, O_RDONLY));
}

static _Noreturn void run_read(const struct file_request *request)
{
	struct stat stat;
	int fd = open_regular(request->path, &stat);
	answer_stat(fd, &stat, request->path);
	uint64_t sent = 0;
	while (!request->has_length || sent < request->length) {
		size_t want = DATA_MAX;
		if (request->has_length && request->length - sent < want)
			want = (size_t)(request->length - sent);
		ssize_t got = pread(fd, buffer + 1 + DATA_PREFIX, want, (off_t)(request->offset + sent));
		if (answer_check((int)got) == 0)
			break;
		buffer[0] = F_DATA;
		buffer[1] = 1;
		put64(buffer + 2, sent);
		answer(buffer, 1 + DATA_PREFIX + (size_t)got);
		sent += (uint64_t)got;
	}
	answer_success(sent);
}

static uint64_t take_content(int fd, const struct file_request *request)
{
	uint64_t length = 0;
	const uint8_t *bytes;
	for (size_t part; (part = content_next(&bytes, SIZE_MAX)) > 0; length += part) {
		if (request->has_length && length + part > request->length)
			answer_refuse(E_CONTENT, 0);
		answer_check(sparse_write(fd, bytes, part, length));
	}
	answer_check(sparse_end(fd, length));
	return length;
}

static _Noreturn void run_write(const struct file_request *request)
{
	char base[BASE_MAX];
	int directory = answer_check(request->flags & FILE_NO_FOLLOW ? path_parent(request->path, base)
	                                                       : path_target(request->path, base));
	/* What is replaced gives its mode and owner where the host gave none. */
	struct stat old = { .st_mode = FILE_MODE, .st_uid = geteuid(), .st_gid = getegid() };
	if (fstatat(directory, base, &old, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(old.st_mode) &&
	    !(S_ISLNK(old.st_mode) && request->flags & FILE_NO_FOLLOW))
		answer_refuse(E_SYSTEM, S_ISDIR(old.st_mode) ? EISDIR : EINVAL);
	int fd = answer_check(openat(directory, temporary_name(directory), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
	if (request->flags & FILE_DIRECT)
		content_direct(fd);
	uint8_t started[13] = { F_STARTED };
	content_begin(request);
	answer(started, sizeof started);
	uint64_t length = take_content(fd, request);
	content_check(request);
	if (request->has_length && length != request->length)
		answer_refuse(E_CONTENT, 0);
	uid_t uid = request->has_uid ? request->uid : old.st_uid;
	gid_t gid = request->has_gid ? request->gid : old.st_gid;
	if (uid != geteuid() || gid != getegid())
		answer_check(fchown(fd, uid, gid));
	/* After the owner, as changing that takes set-user-id away. */
	answer_check(fchmod(fd, request->has_mode ? request->mode : S_ISLNK(old.st_mode) ? FILE_MODE : old.st_mode & 07777));
	if (request->has_mtime) {
		/* Before 1970, too, the fraction counts forwards. */
		int64_t seconds = request->mtime / NANOSECONDS, fraction = request->mtime % NANOSECONDS;
		bool before = fraction < 0;
		const struct timespec time = { seconds - before, fraction + (before ? NANOSECONDS : 0) };
		answer_check(futimens(fd, (const struct timespec[2]){ time, time }));
	}
	answer_check(close(fd));
	answer_check(temporary_place(base));
	answer_success(0);
}

static _Noreturn void run_stat(const struct file_request *request)
{
	struct stat stat;
	int fd = answer_check(path_open(request->path, O_PATH | (request->flags & FILE_NO_FOLLOW ? O_NOFOLLOW : 0)));
	answer_check(fstat(fd, &stat));
	answer_stat(fd, &stat, request->path);
	answer_success(0);
}

static _Noreturn void run_list(const struct file_request *request)
{
	int fd = answer_check(path_open(request->path, O_RDONLY | O_DIRECTORY | O_NONBLOCK));
	DIR *stream = fdopendir(fd);
	if (!stream)
		answer_refuse(E_SYSTEM, errno);
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
		length += answer_record(buffer + length, &stat, name, target);
		if (length + RECORD_MAX > sizeof buffer) {
			answer(buffer, length);
			length = 1;
		}
	}
	if (length > 1)
		answer(buffer, length);
	answer_success(0);
}

static void make_directory(const char *path, uint32_t mode, bool may_exist)
{
	char base[BASE_MAX];
	struct stat stat;
	int directory = path_parent(path, base);
	/* The root. */
	if (directory < 0 && errno == EBUSY && may_exist)
		return;
	answer_check(directory);
	if (mkdirat(directory, base, 0700) == 0) {
		int made = answer_check(openat(directory, base, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
		answer_check(fchmod(made, mode));
		close(made);
	} else if (errno != EEXIST || !may_exist) {
		answer_refuse(E_SYSTEM, errno);
	} else {
		int there = answer_check(path_open(path, O_PATH));
		answer_check(fstat(there, &stat));
		if (!S_ISDIR(stat.st_mode))
			answer_refuse(E_SYSTEM, ENOTDIR);
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
	answer_success(0);
}

static _Noreturn void run_remove(const struct file_request *request)
{
	char base[BASE_MAX];
	int directory = answer_check(path_parent(request->path, base));
	if (unlinkat(directory, base, 0) == 0)
		answer_success(0);
	if (errno != EISDIR && errno != EPERM)
		answer_refuse(E_SYSTEM, errno);
	if (request->flags & FILE_RECURSIVE ? !removal_run(directory, base) : unlinkat(directory, base, AT_REMOVEDIR) < 0)
		answer_refuse(E_SYSTEM, errno);
	answer_success(0);
}

static _Noreturn void run_rename(const struct file_request *request)
{
	char from[BASE_MAX], to[BASE_MAX];
	int source = answer_check(path_parent(request->path, from));
	int target = answer_check(path_parent(request->second, to));
	answer_check(renameat(source, from, target, to));
	answer_success(0);
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
	case OP_ARCHIVE:
		archive_run(request);
	case OP_EXTRACT:
		extract_run(request);
	}
	answer_refuse(E_MALFORMED, 0);
}

pid_t fileop_start(int talk, const struct file_request *request)
{
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	setsid();
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	/* Neither the host's connection nor another channel is held open by this. Descriptor 0 is /dev/null otherwise. */
	if (dup2(talk, TALK) < 0 || !proc_move(2))
		_exit(1);
	syscall(SYS_close_range, 3U, ~0U, 0U);
	oom_reset();
	run(request);
}
