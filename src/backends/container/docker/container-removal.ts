import { setTimeout as sleep } from "node:timers/promises";
import type Docker from "dockerode";
import { asDSecError, statusOf } from "./docker-error.ts";

const firstWaitMs = 20;
const longestWaitMs = 500;
const deadlineMs = 30_000;

/**
 * Kills a container, removes it with its anonymous volumes, and returns when it is gone. Idempotent.
 *
 * @param container id or name
 * @throws DSecError `backend_unavailable`, or `internal` when it is still there after half a minute
 */
export async function removeContainer(docker: Docker, container: string): Promise<void> {
  const handle = docker.getContainer(container);
  let waitMs = firstWaitMs;
  for (let waitedMs = 0; ; waitedMs += waitMs) {
    try {
      await handle.remove({ force: true, v: true });
      return;
    } catch (error) {
      const status = statusOf(error);
      if (status === 404) return;
      // 409: being removed by someone else. 500: it is just being started, or its processes are leaving still.
      if ((status !== 409 && status !== 500) || waitedMs >= deadlineMs) {
        throw asDSecError(error, "internal", `the container ${container} could not be removed`);
      }
    }
    await sleep(waitMs);
    waitMs = Math.min(longestWaitMs, waitMs * 2);
  }
}
