/** Paths of /proc and /sys that tell of the machine or reach into it. What a kernel does not have costs nothing. */

/** Covered by an empty directory or /dev/null. */
export const maskedPaths: readonly string[] = [
  "/proc/acpi",
  "/proc/asound",
  "/proc/interrupts",
  "/proc/kallsyms",
  "/proc/kcore",
  "/proc/key-users",
  "/proc/keys",
  "/proc/kmsg",
  // reading these has crashed kernels
  "/proc/kpagecgroup",
  "/proc/kpagecount",
  "/proc/kpageflags",
  "/proc/latency_stats",
  "/proc/pagetypeinfo",
  "/proc/sched_debug",
  "/proc/scsi",
  "/proc/slabinfo",
  "/proc/timer_list",
  "/proc/timer_stats",
  "/proc/vmallocinfo",
  "/proc/vmcore",
  "/sys/devices/virtual/powercap",
  "/sys/firmware",
  "/sys/fs",
  "/sys/kernel",
];

export const readOnlyPaths: readonly string[] = [
  // the agent: root could make it the first to go when memory runs out
  "/proc/1",
  "/proc/bus",
  "/proc/fs",
  "/proc/irq",
  "/proc/sys",
  "/proc/sysrq-trigger",
];
