#define _GNU_SOURCE
#include "tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "exec.h"
#include "loop.h"

/*
 * One job at a time: read /proc in slices, find the tree, signal it. SIGKILL is repeated until a pass finds nothing
 * alive, as processes may have been made meanwhile. Who leaves the session and outlives its parent between two
 * passes is not found: the cgroup of the sandbox is what holds everything.
 */
enum { SLICE = 128, PROCESSES_MAX = 65536, PASSES_MAX = 24, SESSIONS_MAX = 64, PAUSE_MAX_MS = 50 };

struct process {
	pid_t pid, parent, session;
	char state;
	bool member;
	unsigned long long born;
};

static struct {
	struct channel *channel;
	int signal;
	bool begun; /* only what began since the mark, and without the exec's own process */
	unsigned pass;
	DIR *directory; /* of the pass that is going on */
	uint64_t next_at;
	struct process *processes;
	size_t count, capacity;
	/* Sessions that members were in. Only members can have made them, so all who are in them are members. */
	pid_t sessions[SESSIONS_MAX];
	size_t session_count;
} job;

static bool requested;
static int proc = -1;

bool proc_init(void)
{
	proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return proc >= 0;
}

int proc_open(const char *path, int flags) { return openat(proc, path, flags | O_CLOEXEC); }

bool proc_move(int fd)
{
	if (dup2(proc, fd) < 0)
		return false;
	proc = fd;
	return true;
}

void oom_reset(void)
{
	int fd = proc_open("self/oom_score_adj", O_WRONLY);
	if (fd < 0)
		return;
	/* Above the agent's own, which not every host can lower: when memory runs out, what it started goes first. */
	(void)!write(fd, "500", 3);
	close(fd);
}

void tree_request(void) { requested = true; }

uint64_t tree_wake(void)
{
	if (job.channel)
		return job.next_at;
	return requested ? 0 : UINT64_MAX;
}

static bool read_process(const char *name, struct process *process)
{
	char path[32], text[512];
	snprintf(path, sizeof path, "%.20s/stat", name);
	int fd = proc_open(path, O_RDONLY);
	if (fd < 0)
		return false;
	ssize_t length = read(fd, text, sizeof text - 1);
	close(fd);
	if (length <= 0)
		return false;
	text[length] = 0;
	/* The name may contain anything; what follows its last bracket is numbers. */
	const char *rest = strrchr(text, ')');
	int parent, session;
	if (!rest || sscanf(rest + 1, " %c %d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
	                    &process->state, &parent, &session, &process->born) != 4)
		return false;
	process->pid = (pid_t)atoi(name);
	process->parent = parent;
	process->session = session;
	process->member = false;
	return true;
}

static void add(const struct process *process)
{
	if (job.count == job.capacity) {
		size_t capacity = job.capacity ? 2 * job.capacity : 64;
		struct process *more =
			capacity <= PROCESSES_MAX ? realloc(job.processes, capacity * sizeof *more) : NULL;
		if (!more)
			return;
		job.processes = more;
		job.capacity = capacity;
	}
	job.processes[job.count++] = *process;
}

static bool known_session(pid_t session)
{
	for (size_t i = 0; i < job.session_count; i++)
		if (job.sessions[i] == session)
			return true;
	return false;
}

static int by_pid(const void *a, const void *b)
{
	return ((const struct process *)a)->pid - ((const struct process *)b)->pid;
}

static bool member_pid(pid_t pid)
{
	const struct process key = { .pid = pid };
	const struct process *found = bsearch(&key, job.processes, job.count, sizeof key, by_pid);
	return found && found->member;
}

static uint64_t ticks_now(void)
{
	struct timespec now;
	clock_gettime(CLOCK_BOOTTIME, &now);
	uint64_t hertz = (uint64_t)sysconf(_SC_CLK_TCK);
	return (uint64_t)now.tv_sec * hertz + (uint64_t)now.tv_nsec / (1000000000 / hertz);
}

/* The id that was given out last, or the largest where /proc does not tell. */
static pid_t newest_pid(void)
{
	char text[128];
	int fd = proc_open("loadavg", O_RDONLY);
	ssize_t length = fd >= 0 ? read(fd, text, sizeof text - 1) : 0;
	if (fd >= 0)
		close(fd);
	text[length > 0 ? length : 0] = 0;
	const char *last = strrchr(text, ' ');
	return last ? (pid_t)atoi(last) : INT_MAX;
}

/* Ids grow within a tick. */
void tree_mark(struct channel *channel)
{
	do {
		channel->exec.mark.ticks = ticks_now();
		channel->exec.mark.pid = newest_pid();
	} while (channel->exec.mark.ticks != ticks_now());
}

static bool is_new(const struct process *process)
{
	const struct exec *exec = &job.channel->exec;
	return process->born > exec->mark.ticks ||
	       (process->born == exec->mark.ticks && process->pid > exec->mark.pid);
}

/* Where the tree begins. Who was left behind by a parent that ended has come to the agent. */
static bool is_root(const struct process *process)
{
	const struct exec *exec = &job.channel->exec;
	if (!job.begun)
		return process->pid == exec->pid && !exec->reaped;
	return is_new(process) && (process->parent == exec->pid ||
	                           (process->parent == getpid() && process->session == exec->pid));
}

static void find_members(void)
{
	if (job.count > 0)
		qsort(job.processes, job.count, sizeof *job.processes, by_pid);
	const struct exec *exec = &job.channel->exec;
	for (bool grown = true; grown;) {
		grown = false;
		for (size_t i = 0; i < job.count; i++) {
			struct process *process = &job.processes[i];
			if (process->member || (job.begun && process->pid == exec->pid))
				continue;
			if (!is_root(process) && !known_session(process->session) && !member_pid(process->parent))
				continue;
			process->member = grown = true;
			/* Its own session, and not the agent's, in which a child still is just after its fork. */
			if (process->session != getsid(0) && !(job.begun && process->session == exec->pid) &&
			    !known_session(process->session) &&
			    job.session_count < SESSIONS_MAX)
				job.sessions[job.session_count++] = process->session;
		}
	}
}

/* The handle is taken before the second look, so that an id that was reused in between is never hit. */
static void signal_process(const struct process *process)
{
	int handle = (int)syscall(SYS_pidfd_open, process->pid, 0);
	/* Linux before 5.3 has none; then the second look alone has to do. */
	bool without = handle < 0 && errno == ENOSYS;
	if (handle < 0 && !without)
		return;
	char name[16];
	struct process again;
	snprintf(name, sizeof name, "%d", process->pid);
	if (read_process(name, &again) && again.born == process->born) {
		if (without)
			kill(process->pid, job.signal);
		else
			syscall(SYS_pidfd_send_signal, handle, job.signal, NULL, 0);
	}
	if (handle >= 0)
		close(handle);
}

/* The number of members alive. */
static size_t signal_members(void)
{
	size_t alive = 0;
	for (size_t i = 0; i < job.count; i++) {
		const struct process *process = &job.processes[i];
		if (!process->member || process->state == 'Z' || process->state == 'X')
			continue;
		alive++;
		signal_process(process);
	}
	return alive;
}

/* Signals that came meanwhile are met before anything else. */
static void go_on(struct exec *exec)
{
	for (; exec->later_signals != 0; exec->later_signals &= exec->later_signals - 1)
		if (!exec->reaped)
			kill(exec->pid, __builtin_ctzll(exec->later_signals) + 1);
	if (!exec->reaped)
		kill(exec->pid, SIGCONT);
}

static void end_pass(void)
{
	find_members();
	size_t alive = signal_members();
	job.count = 0;
	job.pass++;
	if (alive > 0 && job.signal == SIGKILL && job.pass < PASSES_MAX) {
		uint64_t pause = 1ULL << min_size(job.pass, 16);
		job.next_at = loop_now() + (pause < PAUSE_MAX_MS ? pause : PAUSE_MAX_MS);
		return;
	}
	free(job.processes);
	job.processes = NULL;
	job.capacity = 0;
	struct channel *channel = job.channel;
	job.channel = NULL;
	*(job.begun ? &channel->exec.begun_signals : &channel->exec.tree_signals) &= ~(1ULL << (job.signal - 1));
	if (job.begun && channel->exec.begun_signals == 0)
		go_on(&channel->exec);
	exec_tree_done(channel);
}

static void read_slice(void)
{
	for (int i = 0; i < SLICE; i++) {
		const struct dirent *entry = readdir(job.directory);
		if (!entry) {
			closedir(job.directory);
			job.directory = NULL;
			end_pass();
			return;
		}
		struct process process;
		if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9' && read_process(entry->d_name, &process) &&
		    process.pid != getpid())
			add(&process);
	}
}

void tree_run(void)
{
	if (!job.channel) {
		if (!requested)
			return;
		job.channel = channels_tree_due();
		if (!job.channel) {
			requested = false;
			return;
		}
		job.begun = job.channel->exec.tree_signals == 0;
		job.signal = __builtin_ctzll(job.begun ? job.channel->exec.begun_signals :
		                                         job.channel->exec.tree_signals) + 1;
		job.pass = 0;
		job.next_at = 0;
		job.sessions[0] = job.channel->exec.pid;
		job.session_count = job.begun ? 0 : 1;
	}
	if (job.next_at > loop_now())
		return;
	if (!job.directory) {
		int fd = proc_open(".", O_RDONLY | O_DIRECTORY);
		job.directory = fd >= 0 ? fdopendir(fd) : NULL;
		if (!job.directory) {
			if (fd >= 0)
				close(fd);
			/* Without /proc, or memory: the process group is better than nothing. */
			if (!job.begun && !job.channel->exec.reaped)
				kill(-job.channel->exec.pid, job.signal);
			end_pass();
			return;
		}
	}
	job.next_at = 0;
	read_slice();
}
