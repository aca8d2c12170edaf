/** A policy outlives the daemon that put it in force, also one that is killed: shown from inside, by somebody who tries all the time. */
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import type { DSecClient, Sandbox } from "../../src/sdk/index.ts";
import { Internet } from "../daemon/network/internet.ts";
import { networkedEngines } from "../daemon/network/networked-engines.ts";
import { type Fleet, startFleet } from "./fleet.ts";

const scope = new AsyncDisposableStack();
/** Each with servers of its own. */
const cases = networkedEngines.map(({ spec, engine }, index) => {
  const [named, allowed, denied] = [3 * index + 1, 3 * index + 2, 3 * index + 3];
  return { spec, name: `${engine}.example.test`, named, allowed, denied };
});
const all = (server: "named" | "allowed" | "denied") => cases.map((one) => one[server]);
let internet: Internet;
let fleet: Fleet;
let client: DSecClient;

beforeAll(async () => {
  internet = scope.use(await Internet.start());
  await internet.setZone(Object.fromEntries(cases.map(({ name, named }) => [name, [named]])));
  const { address, port } = internet.nameServer;
  fleet = scope.use(await startFleet({ flags: ["--name-server", `${address}:${port}`] }));
  client = await fleet.client();
  scope.defer(() => client.close());
});
afterAll(async () => scope.disposeAsync());

/** What servers have got of one kind, from whomever. */
function seen(kind: "tcp" | "http", server: number): number {
  return internet.seen(kind).filter(({ to }) => to === internet.address(server)).length;
}

async function more(kind: "tcp" | "http", servers: readonly number[]): Promise<void> {
  const before = servers.map((server) => seen(kind, server));
  const arrived = () => servers.map((server, index) => seen(kind, server) > (before[index] ?? 0) + 1);
  await vi.waitFor(() => expect(arrived()).not.toContain(false), { timeout: 20_000 });
}

/** Runs until the sandbox's end, and tries all the time what is allowed and what is not. */
async function startTrying({ spec, name, named, allowed, denied }: (typeof cases)[number]): Promise<Sandbox> {
  const networkRules = { [name]: true, [`${internet.address(allowed)}:7`]: true };
  const sandbox = await client.createSandbox({ ...spec, networkRules });
  const request = `printf 'GET / HTTP/1.0\\r\\nHost: ${name}\\r\\n\\r\\n'`;
  const tries = [
    ...[allowed, denied].map((server) => `nc -w 1 ${internet.address(server)} 7 < /dev/null`),
    `${request} | nc -w 1 ${internet.address(named)} 80`,
    `nc -w 1 ${internet.address(allowed)} 80 < /dev/null`,
  ];
  // Side by side: the echo server leaves it to nc to end.
  const loops = [...tries, ...tries].map((one) => `while :; do ${one}; sleep 0.05; done > /dev/null 2>&1 &`);
  await sandbox.runShell(`nslookup ${name}`);
  await sandbox.execDetached(["sh", "-c", `${loops.join(" ")} wait`]);
  return sandbox;
}

test("while their daemon is killed and begun anew, sandboxes of every engine reach allowed addresses, and never another", async () => {
  const sandboxes = await Promise.all(cases.map(startTrying));
  await more("tcp", all("allowed"));
  await more("http", all("named"));

  await fleet.kill("SIGKILL");
  await more("tcp", all("allowed"));
  const byName = all("named").map((server) => seen("http", server));
  await more("tcp", all("allowed"));
  expect(all("named").map((server) => seen("http", server))).toEqual(byName);

  await fleet.restart();
  await more("tcp", all("allowed"));
  for (const [index, sandbox] of sandboxes.entries())
    await sandbox.runShell(`nslookup ${cases[index]?.name ?? ""}`);
  await more("http", all("named"));
  for (const server of all("denied")) expect(seen("tcp", server)).toBe(0);
  for (const server of all("allowed")) expect(seen("http", server)).toBe(0);
  for (const [index, sandbox] of sandboxes.entries())
    await vi.waitFor(async () => {
      const refused: unknown[] = [];
      for await (const decision of sandbox.networkLog()) if (!decision.allowed) refused.push(decision);
      const address = internet.address(cases[index]?.denied ?? 0);
      expect(refused).toContainEqual(expect.objectContaining({ address, port: 7 }));
    });
});
