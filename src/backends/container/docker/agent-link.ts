import { Duplex } from "node:stream";
import type Docker from "dockerode";
import { AgentConnection } from "../../../agent/connection.ts";
import { DSecError } from "../../../protocol/errors.ts";
import { abortable } from "./abortable.ts";
import { AttachStream } from "./attach-stream.ts";

export interface AgentLink {
  readonly stream: AttachStream;
  readonly guest: AgentConnection;
}

/** Opens the channel of a container's agent, which may be yet to start. */
export async function attach(container: Docker.Container): Promise<AttachStream> {
  const connection = await container.attach({
    stream: true,
    stdin: true,
    stdout: true,
    stderr: true,
    hijack: true,
  });
  if (!(connection instanceof Duplex)) {
    throw new DSecError("internal", "the attach stream goes one way only");
  }
  return new AttachStream(connection);
}

/**
 * Opens the channel of an agent that an earlier daemon has spoken to. Docker never ends an attach stream to a container that was ending when it
 * was asked for, so the container's end is watched beside it.
 */
export async function reattach(container: Docker.Container, signal: AbortSignal): Promise<AgentLink> {
  const ended = new AbortController();
  const watch = new AbortController();
  container.wait({ condition: "not-running", abortSignal: watch.signal }).then(
    () => ended.abort(new DSecError("agent_lost", "the container has ended")),
    () => undefined,
  );
  const either = AbortSignal.any([signal, ended.signal]);
  const attaching = attach(container);
  try {
    const stream = await abortable(attaching, either);
    return { stream, guest: await AgentConnection.open(stream, { resync: true, signal: either }) };
  } catch (error) {
    attaching.then(
      (stream) => stream.destroy(),
      () => undefined,
    );
    throw ended.signal.aborted ? ended.signal.reason : error;
  } finally {
    watch.abort();
  }
}
