/**
 * The system calls that programs in a sandbox may make, by purpose, and those that they are refused. Whatever is in neither list does not
 * exist for them, so that a C library falls back from a call which is newer than these lists. A name that a machine's architecture or
 * libseccomp does not know is left out by the runtime.
 *
 * Left out on purpose: new mounts and namespaces (mount, unshare, setns, pivot_root, fsopen …), bpf, perf_event_open, userfaultfd,
 * io_uring, asynchronous I/O (seccomp-profile.ts), keyrings, kexec, modules, clocks, accounting, quotactl, open_by_handle_at, syslog, swap, raw I/O ports,
 * modify_ldt, memory policy: none serves a task, and each has been a way out of containers or into their neighbours.
 */
function names(text: string): string[] {
  return text.split(/\s+/).filter(Boolean);
}

const process = names(`
  execve execveat exit exit_group fork vfork wait4 waitid waitpid kill tkill tgkill
  pidfd_open pidfd_send_signal pidfd_getfd process_mrelease
  getpid gettid getppid getpgid getpgrp setpgid getsid setsid
  getpriority getrusage getrlimit setrlimit prlimit64 times umask
  prctl arch_prctl set_tid_address set_thread_area get_thread_area restart_syscall uname sysinfo
  sched_getaffinity sched_getparam sched_getscheduler sched_getattr
  sched_get_priority_max sched_get_priority_min sched_rr_get_interval sched_yield
  ioprio_get getcpu membarrier rseq futex futex_waitv get_robust_list set_robust_list
`);

/** Of their own processes only: the kernel asks for CAP_SYS_PTRACE beyond that, and the agent is not dumpable. */
const debugging = names(`ptrace process_vm_readv process_vm_writev kcmp`);

const identity = names(`
  getuid geteuid getgid getegid getresuid getresgid getgroups setuid setgid setreuid setregid setresuid setresgid
  setgroups setfsuid setfsgid capget capset
  seccomp landlock_create_ruleset landlock_add_rule landlock_restrict_self
`);

const signals = names(`
  rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo
  sigaltstack signalfd signalfd4 pause
`);

const time = names(`
  time gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep alarm getitimer setitimer adjtimex clock_adjtime
  timer_create timer_delete timer_getoverrun timer_gettime timer_settime
  timerfd_create timerfd_gettime timerfd_settime
`);

const memory = names(`
  brk mmap munmap mremap mprotect madvise mincore msync mlock mlock2 mlockall munlock munlockall
  pkey_alloc pkey_free pkey_mprotect remap_file_pages memfd_create get_mempolicy getrandom
`);

const files = names(`
  open openat openat2 creat close close_range read readv pread64 preadv preadv2 write writev pwrite64 pwritev pwritev2
  lseek dup dup2 dup3 fcntl flock pipe pipe2 sendfile splice tee vmsplice copy_file_range
  truncate ftruncate fallocate fadvise64 readahead sync syncfs fsync fdatasync sync_file_range
  stat fstat lstat newfstatat statx statfs fstatfs access faccessat faccessat2
  chdir fchdir getcwd chroot mkdir mkdirat rmdir mknod mknodat getdents getdents64
  link linkat symlink symlinkat readlink readlinkat unlink unlinkat rename renameat renameat2
  chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes utimensat futimesat
  getxattr lgetxattr fgetxattr setxattr lsetxattr fsetxattr listxattr llistxattr flistxattr
  removexattr lremovexattr fremovexattr name_to_handle_at
  inotify_init inotify_init1 inotify_add_watch inotify_rm_watch
`);

const waiting = names(`
  select pselect6 poll ppoll epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2
  eventfd eventfd2
`);

/** Allowed for all processes but the agent, like `setpriority` and `ioprio_set`: seccomp-profile.ts. */
export const schedulingSyscalls = names(`
  sched_setaffinity sched_setparam sched_setscheduler sched_setattr
`);

/** `socket` and `socketpair` are allowed by family: seccomp-profile.ts. */
const sockets = names(`
  bind connect listen accept accept4 shutdown getsockname getpeername getsockopt setsockopt
  send sendto sendmsg sendmmsg recv recvfrom recvmsg recvmmsg
`);

const interProcess = names(`
  msgctl msgget msgrcv msgsnd semctl semget semop semtimedop shmat shmctl shmdt shmget
  mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend mq_unlink
`);

export const allowedSyscalls: readonly string[] = [
  ...process,
  ...debugging,
  ...identity,
  ...signals,
  ...time,
  ...memory,
  ...files,
  ...waiting,
  ...sockets,
  ...interProcess,
];

/** Not missing but forbidden: programs that try them report it. */
export const refusedSyscalls: readonly string[] = names(`
  mount umount2 pivot_root fsopen fsconfig fsmount fspick open_tree move_mount mount_setattr unshare setns
  bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register
  add_key request_key keyctl kexec_load kexec_file_load init_module finit_module delete_module reboot
  clock_settime settimeofday acct quotactl quotactl_fd swapon swapoff open_by_handle_at syslog iopl ioperm modify_ldt
  mbind set_mempolicy set_mempolicy_home_node migrate_pages move_pages process_madvise memfd_secret
  fanotify_init fanotify_mark vhangup sethostname setdomainname lookup_dcookie sysfs ustat
`);
