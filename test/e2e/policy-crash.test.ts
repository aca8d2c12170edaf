/** A policy outlives the daemon that put it in force, also one that is killed: shown from inside, by somebody who tries all the time. */
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import type { DSecClient } from "../../src/sdk/index.ts";
import { Internet } from "../daemon/network/internet.ts";
import { type Fleet, startFleet } from "./fleet.ts";

const scope = new AsyncDisposableStack();
const name = "a.example.test";
let internet: Internet;
let fleet: Fleet;
let client: DSecClient;

beforeAll(async () => {
  internet = scope.use(await Internet.start());
  await internet.setZone({ [name]: [1] });
  const { address, port } = internet.nameServer;
  fleet = scope.use(await startFleet({ flags: ["--name-server", `${address}:${port}`] }));
  client = await fleet.client();
  scope.defer(() => client.close());
});
afterAll(async () => scope.disposeAsync());

function seen(kind: "tcp" | "http", server: number): number {
  return internet.seen(kind).filter(({ to }) => to === internet.address(server)).length;
}

async function more(kind: "tcp" | "http", server: number): Promise<void> {
  const before = seen(kind, server);
  await vi.waitFor(() => expect(seen(kind, server)).toBeGreaterThan(before + 1), { timeout: 20_000 });
}

test("while its daemon is killed and begun anew, a sandbox reaches allowed addresses, and never another", async () => {
  const networkRules = { [name]: true, [`${internet.address(3)}:7`]: true };
  const sandbox = await client.runContainer({ image: "busybox", engine: "runc", memoryMb: 64, networkRules });
  const request = `printf 'GET / HTTP/1.0\\r\\nHost: ${name}\\r\\n\\r\\n'`;
  const tries = [
    ...[3, 4].map((server) => `nc -w 1 ${internet.address(server)} 7 < /dev/null`),
    `${request} | nc -w 1 ${internet.address(1)} 80`,
    `nc -w 1 ${internet.address(3)} 80 < /dev/null`,
  ];
  // Side by side: the echo server leaves it to nc to end.
  const loops = [...tries, ...tries].map((one) => `while :; do ${one}; sleep 0.05; done > /dev/null 2>&1 &`);
  await sandbox.runShell(`nslookup ${name}`);
  await sandbox.execDetached(["sh", "-c", `${loops.join(" ")} wait`]);
  await more("tcp", 3);
  await more("http", 1);

  await fleet.kill("SIGKILL");
  await more("tcp", 3);
  const byName = seen("http", 1);
  await more("tcp", 3);
  expect(seen("http", 1)).toBe(byName);

  await fleet.restart();
  await more("tcp", 3);
  await sandbox.runShell(`nslookup ${name}`);
  await more("http", 1);
  expect(seen("tcp", 4)).toBe(0);
  expect(seen("http", 3)).toBe(0);
  await vi.waitFor(async () => {
    const refused: unknown[] = [];
    for await (const decision of sandbox.networkLog()) if (!decision.allowed) refused.push(decision);
    expect(refused).toContainEqual(expect.objectContaining({ address: internet.address(4), port: 7 }));
  });
});
