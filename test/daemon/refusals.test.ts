import { mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { createServer, request } from "node:http";
import { connect } from "node:net";
import { join } from "node:path";
import { pino } from "pino";
import { expect, onTestFinished, test } from "vitest";
import { startDaemon } from "../../src/daemon/daemon.ts";
import type { DaemonOptionsInput } from "../../src/daemon/options.ts";
import { HttpClient } from "../../src/wire/client/http-client.ts";
import { temporaryDir, TestDaemon, testOptions } from "./daemon-fixture.ts";

const log = pino({ level: "silent" });

async function refusalOf(options: DaemonOptionsInput): Promise<unknown> {
  try {
    const daemon = await startDaemon(options, { log });
    await daemon.close();
    return "started";
  } catch (error) {
    return error;
  }
}

test("a second daemon in the same run directory is refused", async () => {
  const first = await TestDaemon.start();
  const elsewhere = await temporaryDir();
  const second = { ...testOptions(elsewhere), runDir: testOptions(first.dir).runDir };
  expect(await refusalOf(second)).toMatchObject({ code: "already_running" });
});

test("a second daemon with the same data is refused", async () => {
  const first = await TestDaemon.start();
  const elsewhere = await temporaryDir();
  const second = { ...testOptions(elsewhere), dataDir: testOptions(first.dir).dataDir };
  expect(await refusalOf(second)).toMatchObject({ code: "already_running" });
});

test("what was refused holds nothing: the next daemon starts", async () => {
  const dir = await temporaryDir();
  const socket = join(dir, "taken");
  await writeFile(socket, "not a socket");
  expect(await refusalOf({ ...testOptions(dir), listen: `unix:${socket}` })).toMatchObject({
    code: "address_in_use",
  });
  expect(await refusalOf(testOptions(dir))).toBe("started");
});

test("a port in use is named", async () => {
  const dir = await temporaryDir();
  const other = createServer();
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => void other.close());
  const address = other.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  expect(await refusalOf({ ...testOptions(dir), listen: `http://127.0.0.1:${port}` })).toMatchObject({
    code: "address_in_use",
    message: expect.stringContaining(String(port)) as string,
  });
});

test("a damaged journal stops the daemon, and is kept", async () => {
  const dir = await temporaryDir();
  const options = testOptions(dir);
  const path = join(options.dataDir, "daemon", "journal.sqlite");
  await mkdir(join(options.dataDir, "daemon"), { recursive: true });
  await writeFile(path, "garbage ".repeat(1000));
  expect(await refusalOf(options)).toMatchObject({
    code: "journal_corrupt",
    message: expect.stringContaining(path) as string,
  });
  expect(await readFile(path, "utf8")).toBe("garbage ".repeat(1000));
});

test.each([
  ["a name that is no DNS label", { name: "Node_1" }, "name"],
  ["a relative directory", { dataDir: "data" }, "--data-dir: "],
  ["a token that is too short", { token: "short" }, "token"],
  ["a range that is none", { networkRange: "10.0.0.0" }, "--network-range: "],
  ["a range with bits beyond its prefix", { networkRange: "10.1.2.3/16" }, "bits set beyond"],
  ["a range of everything", { networkRange: "0.0.0.0/0" }, "from /8 to /29"],
  ["a range of loopback", { networkRange: "127.0.0.0/16" }, "no sandbox can have an address of"],
  ["a range too small", { networkRange: "10.1.0.0/30" }, "from /8 to /29"],
  ["no connections to speak of", { maxFlows: 1 }, "--max-flows: "],
  ["no room for any sandbox", { maxSandboxes: 0 }, "--max-sandboxes"],
  ["a floor below nothing", { memoryFloorMb: -1 }, "--memory-floor: "],
])("%s is an invalid setting that is named", async (_what, changes, field) => {
  const dir = await temporaryDir();
  expect(await refusalOf({ ...testOptions(dir), ...changes })).toMatchObject({
    code: "config_invalid",
    message: expect.stringContaining(field) as string,
  });
});

test("several invalid settings are a line each", async () => {
  const dir = await temporaryDir();
  expect(await refusalOf({ ...testOptions(dir), maxSandboxes: 0, networkRange: "x" })).toMatchObject({
    message: "2 options are not valid",
    cause: {
      message: expect.stringMatching(/^--network-range: 'x' is not/) as string,
      cause: { message: expect.stringMatching(/^--max-sandboxes: /) as string },
    },
  });
});

test("an address that other machines could listen in on is refused", async () => {
  const dir = await temporaryDir();
  expect(await refusalOf({ ...testOptions(dir), listen: "http://0.0.0.0:0" })).toMatchObject({
    code: "invalid_argument",
  });
});

test("the socket is its owner's alone", async () => {
  const daemon = await TestDaemon.start();
  const { mode } = await stat(daemon.running.address.slice("unix:".length));
  expect(mode & 0o777).toBe(0o600);
});

test("a wrong token is told nothing, except the version", async () => {
  const daemon = await TestDaemon.start();
  const stranger = new HttpClient({
    address: daemon.running.address,
    token: "wrong-token-wrong-token",
    peer: "node",
  });
  onTestFinished(() => stranger.close());
  for (const route of ["listSandboxes", "nodeStatus", "metrics", "watch"] as const)
    await expect(stranger.json(route)).rejects.toMatchObject({ code: "unauthenticated" });
  expect(await stranger.json("version")).toMatchObject({ role: "daemon", api: "v1" });
});

/** Sends a request as it is; the client of the project would not. */
async function raw(daemon: TestDaemon, method: string, path: string, body: string) {
  return new Promise<{ status: number | undefined; body: unknown }>((resolve, reject) => {
    const sent = request(
      {
        socketPath: daemon.running.address.slice("unix:".length),
        method,
        path,
        headers: { authorization: `Bearer ${testOptions("/").token}`, "content-type": "application/json" },
      },
      (response) => {
        const chunks: Buffer[] = [];
        response.on("data", (chunk: Buffer) => chunks.push(chunk));
        response.on("end", () =>
          resolve({
            status: response.statusCode,
            body: JSON.parse(Buffer.concat(chunks).toString()) as unknown,
          }),
        );
      },
    );
    sent.on("error", reject);
    sent.end(body);
  });
}

test("a body that is too large, not JSON, or not what the route takes is refused", async () => {
  const daemon = await TestDaemon.start();
  const path = `/v1/sandboxes/${daemon.newId()}`;
  expect(await raw(daemon, "PUT", path, `"${"x".repeat(9_000_000)}"`)).toMatchObject({
    status: 413,
    body: { code: "body_too_large" },
  });
  expect(await raw(daemon, "PUT", path, "{")).toMatchObject({
    status: 400,
    body: { code: "invalid_argument" },
  });
  expect(await raw(daemon, "PUT", path, "[]")).toMatchObject({
    status: 400,
    body: { code: "invalid_argument" },
  });
  expect(await raw(daemon, "POST", "/v1/nothing", "{}")).toMatchObject({
    status: 404,
    body: { code: "not_found" },
  });
});

test("what is no HTTP gets an answer that is, and the daemon goes on", async () => {
  const daemon = await TestDaemon.start();
  const socket = connect({ path: daemon.running.address.slice("unix:".length) });
  socket.end("\u0000\u0001 what is this\r\n\r\n");
  const chunks: Buffer[] = [];
  for await (const chunk of socket) chunks.push(chunk as Buffer);
  expect(Buffer.concat(chunks).toString()).toContain("HTTP/1.1 400");
  expect(await daemon.place()).toMatchObject({ state: "running" });
});
