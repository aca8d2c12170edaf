/** The system call filter in the form of an OCI bundle. */
import { constants } from "node:os";
import { allowedSyscalls, refusedSyscalls, schedulingSyscalls } from "./seccomp-syscalls.ts";

const { EPERM, ENOSYS, ENOTTY, EAFNOSUPPORT, EPROTONOSUPPORT } = constants.errno;

interface ArgumentRule {
  readonly index: number;
  readonly value: number;
  /** What `SCMP_CMP_MASKED_EQ` compares with, under the mask `value`. */
  readonly valueTwo?: number;
  readonly op: "SCMP_CMP_EQ" | "SCMP_CMP_GT" | "SCMP_CMP_MASKED_EQ";
}

interface SyscallRule {
  readonly names: readonly string[];
  readonly action: "SCMP_ACT_ALLOW" | "SCMP_ACT_ERRNO";
  readonly errnoRet?: number;
  readonly args?: readonly ArgumentRule[];
}

export interface SeccompProfile {
  readonly defaultAction: "SCMP_ACT_ERRNO";
  readonly defaultErrnoRet: number;
  readonly architectures: readonly string[];
  readonly syscalls: readonly SyscallRule[];
}

function allow(name: string, ...args: readonly ArgumentRule[]): SyscallRule {
  return { names: [name], action: "SCMP_ACT_ALLOW", args };
}

function refuse(name: string, errnoRet: number, ...args: readonly ArgumentRule[]): SyscallRule {
  return { names: [name], action: "SCMP_ACT_ERRNO", errnoRet, args };
}

const equals = (index: number, value: number): ArgumentRule => ({ index, value, op: "SCMP_CMP_EQ" });
const above = (index: number, value: number): ArgumentRule => ({ index, value, op: "SCMP_CMP_GT" });
const masked = (index: number, mask: number, value: number): ArgumentRule => ({
  index,
  value: mask,
  valueTwo: value,
  op: "SCMP_CMP_MASKED_EQ",
});

/** CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET. */
const newNamespaces = [
  0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000,
] as const;
const anyNamespace = newNamespaces.reduce((flags, flag) => flags | flag, 0);

/** clone3 hides its flags in memory, where a filter cannot look; the C libraries fall back to clone. */
const clone: readonly SyscallRule[] = [
  allow("clone", masked(0, anyNamespace, 0)),
  ...newNamespaces.map((flag) => refuse("clone", EPERM, masked(0, flag, flag))),
  { names: ["clone3"], action: "SCMP_ACT_ERRNO", errnoRet: ENOSYS },
];

/**
 * Linux AIO: its contexts are counted for the whole machine (fs.aio-max-nr), so that one sandbox could take them all. Programs
 * that are told that the kernel lacks it use threads or plain reads.
 */
const asynchronousIo: SyscallRule = {
  names: ["io_setup", "io_submit", "io_getevents", "io_pgetevents", "io_cancel", "io_destroy"],
  action: "SCMP_ACT_ERRNO",
  errnoRet: ENOSYS,
};

const family = { unix: 1, inet: 2, inet6: 10, netlink: 16 } as const;
/** rtnetlink (0) and socket diagnosis (4). Without audit, libaudit takes it that the kernel has none, and logins work without CAP_AUDIT_WRITE. */
const netlinkProtocols = [0, 4] as const;

const socket: readonly SyscallRule[] = [
  allow("socket", equals(0, family.unix)),
  allow("socket", equals(0, family.inet)),
  allow("socket", equals(0, family.inet6)),
  ...netlinkProtocols.map((protocol) => allow("socket", equals(0, family.netlink), equals(2, protocol))),
  refuse("socket", EPROTONOSUPPORT, equals(0, family.netlink), above(2, Math.max(...netlinkProtocols))),
  refuse("socket", EAFNOSUPPORT, above(0, family.netlink)),
  allow("socketpair", equals(0, family.unix)),
];

/** The kernel looks at 32 bits of an int, a filter at 64. */
const isInt = (index: number, value: number): ArgumentRule => masked(index, 0xffff_ffff, value);

/** Process ids are below 2 to the power of 22. */
const pidBits = 22;

/**
 * Any process but the agent, which is 1: the caller itself (0), or an id with another bit than the lowest. Rules of one call must not overlap,
 * as libseccomp does not say which of them then holds.
 */
function notTheAgent(index: number): ArgumentRule[] {
  const others = Array.from({ length: pidBits - 1 }, (_, bit) => 2 << bit);
  return [isInt(index, 0), ...others.map((bit) => masked(index, bit, bit))];
}

/** PRIO_PROCESS and PRIO_PGRP, IOPRIO_WHO_PROCESS and IOPRIO_WHO_PGRP; not all processes of a user, who has the agent, too. */
const ofProcesses: readonly (readonly [name: string, which: number])[] = [
  ["setpriority", 0],
  ["setpriority", 1],
  ["ioprio_set", 1],
  ["ioprio_set", 2],
];

/**
 * Root inside has the agent's user, which is all the kernel asks for: it could have its own agent run last, or never, and no time
 * limit would hold.
 */
const scheduling: readonly SyscallRule[] = [
  ...schedulingSyscalls.flatMap((name) => notTheAgent(0).map((who) => allow(name, who))),
  ...ofProcesses.flatMap(([name, which]) => notTheAgent(1).map((who) => allow(name, isInt(0, which), who))),
];

/** PER_LINUX, PER_LINUX32, UNAME26 and both, ADDR_NO_RANDOMIZE (debuggers), and asking. */
const personalities = [0x0, 0x8, 0x2_0000, 0x2_0008, 0x4_0000, 0xffff_ffff] as const;

/**
 * ioctl by the type byte of its request. The kernel looks at 32 bits of it and the filter at 64, so every comparison is
 * masked. Refused are above all requests that change or exchange a file's extents (ext4 MOVE_EXT and FIEMAP under `f`, XFS
 * under `X`, btrfs and clone under 0x94) and project ids (FSSETXATTR under `X`), by which quotas count; the answer is
 * ENOTTY, as from a file system that lacks them, and tools fall back.
 */
const ioctl: readonly SyscallRule[] = [
  // terminals and what every descriptor knows (FIONREAD, FIONBIO, FIOCLEX)
  allow("ioctl", masked(1, 0xff00, 0x5400)),
  // sockets and interfaces
  allow("ioctl", masked(1, 0xff00, 0x8900)),
  // file attributes and version: lsattr, chattr
  allow("ioctl", masked(1, 0xffff, 0x6601)),
  allow("ioctl", masked(1, 0xffff, 0x6602)),
  allow("ioctl", masked(1, 0xffff, 0x7601)),
  // RNDGETENTCNT, FIGETBSZ
  allow("ioctl", masked(1, 0xffff, 0x5200)),
  allow("ioctl", masked(1, 0xffff, 0x0002)),
  refuse("ioctl", ENOTTY, masked(1, 0xffff, 0x660b)),
  refuse("ioctl", ENOTTY, masked(1, 0xff00, 0x5800)),
  refuse("ioctl", ENOTTY, masked(1, 0xff00, 0x9400)),
];

const architectures: Readonly<Record<string, string>> = {
  x64: "SCMP_ARCH_X86_64",
  arm64: "SCMP_ARCH_AARCH64",
};

/**
 * The filter for this machine. Only its own 64-bit calls: programs of other architectures (32-bit ones too) are killed by
 * SIGSYS, since their calls have numbers of their own.
 *
 * @param arch as process.arch
 * @throws RangeError for an architecture that it was not written for
 */
export function seccompProfile(arch: string = process.arch): SeccompProfile {
  const architecture = architectures[arch];
  if (architecture === undefined) throw new RangeError(`there is no system call filter for ${arch}`);
  return {
    defaultAction: "SCMP_ACT_ERRNO",
    defaultErrnoRet: ENOSYS,
    architectures: [architecture],
    syscalls: [
      { names: allowedSyscalls, action: "SCMP_ACT_ALLOW" },
      { names: refusedSyscalls, action: "SCMP_ACT_ERRNO", errnoRet: EPERM },
      ...clone,
      asynchronousIo,
      ...scheduling,
      ...socket,
      ...personalities.map((value) => allow("personality", equals(0, value))),
      ...ioctl,
    ],
  };
}
