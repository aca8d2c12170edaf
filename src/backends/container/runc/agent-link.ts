import { once } from "node:events";
import { connect } from "node:net";
import { AgentConnection } from "../../../agent/connection.ts";

/**
 * Connects to a sandbox's agent and greets it.
 *
 * @throws DSecError `agent_lost`, `protocol_error`, `cancelled`; Error of connect(2), AbortError
 */
export async function openAgent(socket: string, signal: AbortSignal): Promise<AgentConnection> {
  const stream = connect({ path: socket });
  try {
    await once(stream, "connect", { signal });
    return await AgentConnection.open(stream, { resync: false, signal });
  } catch (error) {
    stream.destroy();
    throw error;
  }
}
