import type { ExecSpec } from "../../protocol/exec.ts";

/** Whether the output is kept on the node. */
export function isRecorded(spec: ExecSpec): boolean {
  return spec.record || spec.detach || spec.onDisconnect === "keep";
}

/** Whether the exit code must outlive the client and the daemon. */
export function isJournaled(spec: ExecSpec): boolean {
  return isRecorded(spec) || spec.endsSandbox;
}

/** Whether it goes on when its client goes away. */
export function isKept(spec: ExecSpec): boolean {
  return spec.detach || spec.onDisconnect === "keep";
}
