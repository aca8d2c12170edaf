/**
 * What root in a sandbox may do beyond an ordinary user. Compared with Docker's default: no NET_RAW (forged packets), no MKNOD (device
 * nodes), no AUDIT_WRITE (forged audit records; seccomp-profile.ts makes logins work without). SETFCAP stays, since packages set file
 * capabilities when they are installed; under no_new_privs they have no effect.
 */
export const grantedCapabilities: readonly string[] = [
  "CAP_CHOWN",
  "CAP_DAC_OVERRIDE",
  "CAP_FOWNER",
  "CAP_FSETID",
  "CAP_KILL",
  "CAP_NET_BIND_SERVICE",
  "CAP_SETFCAP",
  "CAP_SETGID",
  "CAP_SETPCAP",
  "CAP_SETUID",
  "CAP_SYS_CHROOT",
];
