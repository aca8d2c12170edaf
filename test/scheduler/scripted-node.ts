import { once } from "node:events";
import { createServer } from "node:http";
import { onTestFinished } from "vitest";

type Respond = (status: number, body: object) => void;

/** A node that answers as the test wants. */
export async function scriptedNode(
  handler: (url: string, respond: Respond, cut: () => void) => Promise<void>,
): Promise<string> {
  const server = createServer((request, response) => {
    request.resume();
    request.once("end", () => {
      const respond: Respond = (status, body) => {
        response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
      };
      void handler(request.url ?? "", respond, () => response.destroy());
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const bound = server.address();
  const port = typeof bound === "object" && bound !== null ? bound.port : 0;
  return `http://127.0.0.1:${port}`;
}

/** Enough of a status to be chosen. */
export function statusOf(name: string): object {
  return {
    name,
    cordoned: false,
    backends: [{ backend: "simulated", works: true, findings: [] }],
    cpus: 1,
    memoryBytes: 1e9,
    memoryAvailableBytes: 1e9,
    counts: {},
    asked: { cpus: 0, memoryBytes: 0, diskBytes: 0 },
    maxSandboxes: 10,
  };
}
