/*
 * Tries one thing and prints how it went: "ok", the errno's name, or "nothing" for an empty file. Runs inside the sandbox, as root.
 *
 *   attempt NAME [ARGUMENT...]
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* musl has no strerrorname_np. */
static const char *strerrorname(int code)
{
	static const struct {
		int code;
		const char *name;
	} names[] = {
		{ EPERM, "EPERM" },	{ ENOENT, "ENOENT" },	{ ESRCH, "ESRCH" },	{ EIO, "EIO" },
		{ EBADF, "EBADF" },	{ ENOMEM, "ENOMEM" },	{ EACCES, "EACCES" },	{ EBUSY, "EBUSY" },
		{ EEXIST, "EEXIST" },	{ EXDEV, "EXDEV" },	{ ENODEV, "ENODEV" },	{ ENOTDIR, "ENOTDIR" },
		{ EINVAL, "EINVAL" },	{ ENOTTY, "ENOTTY" },	{ ETXTBSY, "ETXTBSY" },	{ EROFS, "EROFS" },
		{ ENOSYS, "ENOSYS" },	{ ELOOP, "ELOOP" },	{ EFAULT, "EFAULT" },	{ ENOTSUP, "ENOTSUP" },
		{ ECONNREFUSED, "ECONNREFUSED" }, { EAFNOSUPPORT, "EAFNOSUPPORT" }, { EPROTONOSUPPORT, "EPROTONOSUPPORT" },
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (names[i].code == code)
			return names[i].name;
	return strerror(code);
}

static int report(long result)
{
	if (result >= 0)
		puts("ok");
	else
		puts(strerrorname(errno));
	return 0;
}

static long number(const char *text) { return strtol(text, NULL, 0); }

static void *thread(void *argument) { return argument; }

static long ptrace_child(void)
{
	pid_t child = fork();
	if (child == 0)
		for (;;)
			pause();
	long result = ptrace(PTRACE_ATTACH, child, 0, 0);
	int saved = errno;
	if (result == 0)
		waitpid(child, NULL, 0);
	kill(child, SIGKILL);
	errno = saved;
	return result;
}

static long connect_unix(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	strncpy(address.sun_path, path, sizeof address.sun_path - 1);
	return connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&address, sizeof address);
}

static long clone3_plain(void)
{
	unsigned long long arguments[11] = { 0 };
	arguments[4] = SIGCHLD;
	long pid = syscall(SYS_clone3, arguments, sizeof arguments);
	if (pid == 0)
		_exit(0);
	return pid;
}

static long read_memory_of(pid_t pid)
{
	char byte;
	struct iovec local = { &byte, 1 }, remote = { (void *)0x400000, 1 };
	return process_vm_readv(pid, &local, 1, &remote, 1, 0);
}

static long pidfd_getfd_of(pid_t pid, int fd)
{
	long pidfd = syscall(SYS_pidfd_open, pid, 0);
	return pidfd < 0 ? -1 : syscall(SYS_pidfd_getfd, pidfd, fd, 0);
}

static long open_by_handle(void)
{
	struct {
		struct file_handle head;
		unsigned char bytes[8];
	} handle = { { 8, 1 }, { 2, 0, 0, 0, 0, 0, 0, 0 } };
	return open_by_handle_at(open("/", O_RDONLY), &handle.head, O_RDONLY);
}

static long limit_of(pid_t pid)
{
	struct rlimit limit = { 1, 1 };
	return prlimit(pid, RLIMIT_NOFILE, &limit, NULL);
}

static long attempt(char **a)
{
	char buffer[4096] = { 0 };
	const char *n = a[0];
	if (!strcmp(n, "open"))
		return open(a[1], number(a[2]));
	if (!strcmp(n, "readlink"))
		return readlink(a[1], buffer, sizeof buffer);
	if (!strcmp(n, "read")) {
		int fd = open(a[1], O_RDONLY | O_NONBLOCK);
		long length = fd < 0 ? -1 : read(fd, buffer, sizeof buffer);
		if (length == 0) {
			puts("nothing");
			exit(0);
		}
		return length;
	}
	if (!strcmp(n, "write")) {
		int fd = open(a[1], O_WRONLY);
		return fd < 0 ? -1 : write(fd, a[2], strlen(a[2]));
	}
	if (!strcmp(n, "unlink"))
		return unlink(a[1]);
	if (!strcmp(n, "rename"))
		return rename(a[1], a[2]);
	if (!strcmp(n, "chmod"))
		return chmod(a[1], 0777);
	if (!strcmp(n, "mknod"))
		return mknod(a[1], number(a[2]) | 0600, makedev(number(a[3]), number(a[4])));
	if (!strcmp(n, "mount"))
		return mount(a[1], a[2], a[3], number(a[4]), NULL);
	if (!strcmp(n, "umount"))
		return umount2(a[1], MNT_DETACH);
	if (!strcmp(n, "pivot_root"))
		return syscall(SYS_pivot_root, "/", "/tmp");
	if (!strcmp(n, "fsopen"))
		return syscall(430, "tmpfs", 0);
	if (!strcmp(n, "open_tree"))
		return syscall(428, AT_FDCWD, "/", 1);
	if (!strcmp(n, "unshare"))
		return unshare(number(a[1]));
	if (!strcmp(n, "setns"))
		return setns(open("/proc/self/ns/mnt", O_RDONLY), 0);
	if (!strcmp(n, "clone")) {
		long pid = syscall(SYS_clone, number(a[1]) | SIGCHLD, 0, 0, 0, 0);
		if (pid == 0)
			_exit(0);
		return pid;
	}
	if (!strcmp(n, "clone3"))
		return clone3_plain();
	if (!strcmp(n, "bpf"))
		return syscall(SYS_bpf, 0, buffer, 64);
	if (!strcmp(n, "perf_event_open"))
		return syscall(SYS_perf_event_open, buffer, 0, -1, -1, 0);
	if (!strcmp(n, "userfaultfd"))
		return syscall(SYS_userfaultfd, 0);
	if (!strcmp(n, "io_uring_setup"))
		return syscall(425, 1, buffer);
	if (!strcmp(n, "keyctl"))
		return syscall(SYS_keyctl, 0, -3, 0);
	if (!strcmp(n, "add_key"))
		return syscall(SYS_add_key, "user", "a", "b", 1, -3);
	if (!strcmp(n, "kexec_load"))
		return syscall(SYS_kexec_load, 0, 0, 0, 0);
	if (!strcmp(n, "init_module"))
		return syscall(SYS_init_module, buffer, 0, "");
	if (!strcmp(n, "reboot"))
		return syscall(SYS_reboot, 0xfee1dead, 672274793, 0, 0);
	if (!strcmp(n, "swapon"))
		return syscall(SYS_swapon, "/tmp", 0);
	if (!strcmp(n, "syslog"))
		return syscall(SYS_syslog, 3, buffer, sizeof buffer);
	if (!strcmp(n, "settimeofday"))
		return syscall(SYS_clock_settime, 0, buffer);
	if (!strcmp(n, "acct"))
		return syscall(SYS_acct, "/tmp/acct");
	if (!strcmp(n, "quotactl"))
		return syscall(SYS_quotactl, 0x800007 << 8, 0, 0, 0);
	if (!strcmp(n, "sethostname"))
		return sethostname("x", 1);
	if (!strcmp(n, "open_by_handle_at"))
		return open_by_handle();
	if (!strcmp(n, "ptrace"))
		return ptrace(PTRACE_ATTACH, number(a[1]), 0, 0);
	if (!strcmp(n, "ptrace_child"))
		return ptrace_child();
	if (!strcmp(n, "process_vm_readv"))
		return read_memory_of(number(a[1]));
	if (!strcmp(n, "pidfd_getfd"))
		return pidfd_getfd_of(number(a[1]), number(a[2]));
	if (!strcmp(n, "prlimit"))
		return limit_of(number(a[1]));
	if (!strcmp(n, "kill"))
		return kill(number(a[1]), number(a[2]));
	if (!strcmp(n, "socket"))
		return socket(number(a[1]), number(a[2]), number(a[3]));
	if (!strcmp(n, "socketpair"))
		return socketpair(number(a[1]), SOCK_STREAM, 0, (int[2]){ 0 });
	if (!strcmp(n, "connect"))
		return connect_unix(a[1]);
	if (!strcmp(n, "ioctl"))
		return syscall(SYS_ioctl, open(a[1], O_RDWR), strtoul(a[2], NULL, 0), buffer);
	if (!strcmp(n, "personality"))
		return syscall(SYS_personality, strtoul(a[1], NULL, 0));
	if (!strcmp(n, "thread"))
		return -pthread_create(&(pthread_t){ 0 }, NULL, thread, NULL);
	if (!strcmp(n, "bomb"))
		for (;;)
			if (fork() < 0)
				usleep(1000);
	if (!strcmp(n, "memfd"))
		return memfd_create("a", 0);
	if (!strcmp(n, "inotify"))
		return inotify_add_watch(inotify_init1(0), "/tmp", IN_CREATE);
	if (!strcmp(n, "setuid"))
		return setgid(1000) || setuid(1000) ? -1 : open("/tmp", O_RDONLY);
	if (!strcmp(n, "chroot"))
		return chroot(a[1]);
	if (!strcmp(n, "setpriority"))
		return setpriority(PRIO_PROCESS, 0, number(a[1]));
	/* By numbers, so that no bit is lost. */
	if (!strcmp(n, "setpriority_of"))
		return syscall(SYS_setpriority, number(a[1]), number(a[2]), 19L);
	if (!strcmp(n, "ioprio_of"))
		return syscall(SYS_ioprio_set, number(a[1]), number(a[2]), 3L << 13);
	if (!strcmp(n, "idle"))
		return syscall(SYS_sched_setscheduler, number(a[1]), (long)SCHED_IDLE, &(struct sched_param){ 0 });
	if (!strcmp(n, "sched_setparam"))
		return syscall(SYS_sched_setparam, number(a[1]), &(struct sched_param){ 0 });
	if (!strcmp(n, "sched_setattr"))
		return syscall(SYS_sched_setattr, number(a[1]), &(uint32_t[14]){ 56, SCHED_OTHER }, 0L);
	if (!strcmp(n, "sched_setaffinity"))
		return syscall(SYS_sched_setaffinity, number(a[1]), sizeof(long), &(long){ 1 });
	if (!strcmp(n, "capability"))
		return prctl(PR_CAPBSET_READ, number(a[1])) ? 0 : (errno = EPERM, -1);
	fprintf(stderr, "attempt: what is %s?\n", n);
	exit(2);
}

int main(int argc, char **argv) { return argc < 2 ? 2 : report(attempt(argv + 1)); }
