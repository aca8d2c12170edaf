#define _GNU_SOURCE
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "frame.h"
#include "tree.h"
#include "user.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static struct rlimit descriptors;
static int null_fd = -1;
/* Where errors are said. */
static int status = -1;

/* The request, in the child's own copy of it. */
static struct {
	char **argv, **env;
	size_t argc, envc;
	const char *cwd, *user;
} exec;

void child_init(void)
{
	null_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	/* Three descriptors an exec; the children get the limit that was there before. */
	getrlimit(RLIMIT_NOFILE, &descriptors);
	struct rlimit more = { descriptors.rlim_max, descriptors.rlim_max };
	setrlimit(RLIMIT_NOFILE, &more);
}

static _Noreturn void refuse(enum error_code code, int error)
{
	uint8_t said[8];
	put32(put32(said, code), (uint32_t)error);
	(void)!write(status, said, sizeof said);
	_exit(127);
}

/* The parent has checked the fields. Ends the strings in place: what follows each is the next tag or the end mark. */
static void read_request(const uint8_t *fields, size_t length)
{
	const uint8_t *at = fields, *end = fields + length;
	struct field field;
	bool malformed = false;
	size_t count = 0;
	while (field_next(&at, end, &field, &malformed))
		count++;
	/* Both lists in one, each with its end, and three more variables at most. */
	char **list = calloc(2 * count + 8, sizeof *list);
	uint8_t **ends = calloc(count + 1, sizeof *ends);
	if (!list || !ends)
		refuse(E_LIMIT, ENOMEM);
	exec.argv = list;
	exec.env = list + count + 1;
	count = 0;
	for (at = fields; field_next(&at, end, &field, &malformed);) {
		/* The frame lies in a buffer of the parser's, which in this process nobody else uses any more. */
		char *text = (char *)(uintptr_t)field.bytes;
		ends[count++] = (uint8_t *)text + field.length;
		if (field.tag == 1)
			exec.argv[exec.argc++] = text;
		else if (field.tag == 2)
			exec.env[exec.envc++] = text;
		else if (field.tag == 3)
			exec.cwd = text;
		else if (field.tag == 4)
			exec.user = text;
	}
	while (count > 0)
		*ends[--count] = 0;
}

static const char *variable(const char *name)
{
	size_t length = strlen(name);
	for (size_t i = 0; i < exec.envc; i++)
		if (strncmp(exec.env[i], name, length) == 0 && exec.env[i][length] == '=')
			return exec.env[i] + length + 1;
	return NULL;
}

static void set_default(const char *name, const char *value)
{
	if (variable(name))
		return;
	char *text = malloc(strlen(name) + strlen(value) + 2);
	if (!text)
		refuse(E_LIMIT, ENOMEM);
	sprintf(text, "%s=%s", name, value);
	exec.env[exec.envc++] = text;
}

static void take_streams(const struct child_fds *fds)
{
	/* Descriptors 0 to 2 are taken in the agent, so none of these is among them. */
	if (dup2(fds->in >= 0 ? fds->in : null_fd, 0) < 0 || dup2(fds->out, 1) < 0 || dup2(fds->error, 2) < 0)
		refuse(E_SYSTEM, errno);
	if (fds->terminal && ioctl(0, TIOCSCTTY, 0) < 0)
		refuse(E_SYSTEM, errno);
	syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
}

static void reset(void)
{
	sigset_t none;
	sigemptyset(&none);
	/* Of all signals only SIGPIPE has another disposition in the agent. */
	signal(SIGPIPE, SIG_DFL);
	sigprocmask(SIG_SETMASK, &none, NULL);
	umask(022);
	setrlimit(RLIMIT_NOFILE, &descriptors);
	oom_reset();
}

static void become(const struct user *user)
{
	bool same = user->uid == getuid() && user->gid == getgid();
	if (setgroups(user->group_count, user->groups) < 0 && !(same && errno == EPERM))
		refuse(E_SYSTEM, errno);
	if (setresgid(user->gid, user->gid, user->gid) < 0 || setresuid(user->uid, user->uid, user->uid) < 0)
		refuse(E_SYSTEM, errno);
}

static void take_user(bool terminal)
{
	static struct user user;
	char self[16];
	bool known = variable("HOME") && variable("USER");
	if (exec.user || !known) {
		snprintf(self, sizeof self, "%u", (unsigned)geteuid());
		char *passwd = user_read("/etc/passwd"), *group = exec.user ? user_read("/etc/group") : NULL;
		if (!user_lookup(exec.user ? exec.user : self, passwd, group, &user))
			refuse(E_USER, 0);
		set_default("HOME", user.home);
		set_default("USER", user.name);
	}
	if (exec.user) {
		if (terminal)
			(void)!fchown(0, user.uid, (gid_t)-1);
		become(&user);
	} else {
		/* The agent's saved group differs (main.c). */
		(void)!setresgid((gid_t)-1, (gid_t)-1, getegid());
	}
}

static bool is_there(const char *path)
{
	struct stat stat;
	return fstatat(AT_FDCWD, path, &stat, 0) == 0;
}

static void refuse_command(const char *path, int error)
{
	if (error == ENOMEM || error == EAGAIN)
		refuse(E_SYSTEM, error);
	/* A file that is there but whose interpreter is not gives ENOENT, too. */
	bool missing = (error == ENOENT || error == ENOTDIR) && !is_there(path);
	refuse(missing ? E_NOT_FOUND : E_NOT_EXECUTABLE, error);
}

static _Noreturn void run(void)
{
	const char *name = exec.argv[0];
	if (strchr(name, '/')) {
		execve(name, exec.argv, exec.env);
		refuse_command(name, errno);
	}
	int denied = 0;
	char *path = malloc(strlen(name) + 4098);
	if (!path)
		refuse(E_LIMIT, ENOMEM);
	for (const char *at = *name ? variable("PATH") : NULL; at;) {
		size_t length = strcspn(at, ":");
		if (length <= 4096) {
			/* An empty entry is the working directory. */
			sprintf(path, "%.*s%s%s", (int)length, at, length > 0 ? "/" : "", name);
			execve(path, exec.argv, exec.env);
			if (errno == EACCES)
				denied = EACCES;
			else if (errno != ENOENT && errno != ENOTDIR)
				refuse_command(path, errno);
			else if (is_there(path))
				refuse(E_NOT_EXECUTABLE, errno);
		}
		at = at[length] ? at + length + 1 : NULL;
	}
	refuse(denied ? E_NOT_EXECUTABLE : E_NOT_FOUND, denied ? denied : ENOENT);
}

pid_t child_start(const struct child_fds *fds, const uint8_t *fields, size_t length)
{
	/* Not vfork: setuid would change the dumpability of memory that is shared with the agent. */
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	status = fds->status;
	setsid();
	read_request(fields, length);
	reset();
	take_streams(fds);
	set_default("PATH", DEFAULT_PATH);
	take_user(fds->terminal);
	const char *cwd = exec.cwd ? exec.cwd : "/";
	if (chdir(cwd) < 0)
		refuse(E_CWD, errno);
	run();
}
