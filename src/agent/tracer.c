#define _GNU_SOURCE
#include "tracer.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tree.h"

struct threads {
	pid_t pid;
	DIR *directory;
};

struct thread {
	bool ended;
	pid_t tracer; /* or 0 */
};

int process_watch(pid_t pid) { return (int)syscall(SYS_pidfd_open, pid, 0); }

static bool threads_open(struct threads *threads, pid_t pid)
{
	char path[32];
	snprintf(path, sizeof path, "%d/task", pid);
	int fd = proc_open(path, O_RDONLY | O_DIRECTORY);
	threads->pid = pid;
	threads->directory = fd >= 0 ? fdopendir(fd) : NULL;
	if (fd >= 0 && !threads->directory)
		close(fd);
	return threads->directory != NULL;
}

static bool read_thread(pid_t pid, const char *name, struct thread *thread)
{
	char path[64], text[512];
	snprintf(path, sizeof path, "%d/task/%.20s/status", pid, name);
	int fd = proc_open(path, O_RDONLY);
	if (fd < 0)
		return false;
	ssize_t length = read(fd, text, sizeof text - 1);
	close(fd);
	text[length > 0 ? length : 0] = 0;
	/* A name cannot hold a line break here. */
	const char *state = strstr(text, "\nState:\t"), *tracer = strstr(text, "\nTracerPid:\t");
	if (!state || !tracer)
		return false;
	thread->ended = state[8] == 'Z' || state[8] == 'X';
	thread->tracer = (pid_t)atoi(tracer + 12);
	return true;
}

/* False when there is none left. */
static bool threads_next(struct threads *threads, struct thread *thread)
{
	for (const struct dirent *entry; (entry = readdir(threads->directory));)
		if (entry->d_name[0] != '.' && read_thread(threads->pid, entry->d_name, thread))
			return true;
	closedir(threads->directory);
	return false;
}

bool process_ended(pid_t pid)
{
	struct threads threads;
	if (!threads_open(&threads, pid))
		return false;
	struct thread thread;
	bool seen = false, ended = true;
	while (threads_next(&threads, &thread)) {
		seen = true;
		ended = ended && thread.ended;
	}
	return seen && ended;
}

void tracers_kill(pid_t pid)
{
	struct threads threads;
	if (!threads_open(&threads, pid))
		return;
	struct thread thread;
	while (threads_next(&threads, &thread))
		if (thread.tracer > 1 && thread.tracer != getpid())
			kill(thread.tracer, SIGKILL);
}
