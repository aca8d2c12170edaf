import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { longestSocketPath, openListeningSocket } from "../../../src/backends/linux/listening-socket.ts";

let directory: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), "dsec-socket-"));
});

afterEach(() => {
  rmSync(directory, { recursive: true });
});

test("a child accepts on the inherited descriptor after it was closed here", async () => {
  const socket = openListeningSocket(join(directory, "s"));
  const script = `require("net").createServer((c) => c.end("hello")).listen({ fd: 3 })`;
  const child = spawn(process.execPath, ["-e", script], {
    stdio: ["ignore", "inherit", "inherit", socket.fd],
  });
  socket.close();
  socket.close();
  const client = connect(socket.path);
  const chunks: Buffer[] = [];
  client.on("data", (chunk: Buffer) => chunks.push(chunk));
  await once(client, "close");
  expect(Buffer.concat(chunks).toString()).toBe("hello");
  child.kill("SIGKILL");
  await once(child, "exit");
});

test("only the owner may connect, whatever the umask", () => {
  const before = process.umask(0);
  try {
    const socket = openListeningSocket(join(directory, "s"));
    expect(statSync(socket.path).mode & 0o777).toBe(0o600);
    socket.close();
  } finally {
    process.umask(before);
  }
});

test("a path in use is refused and left alone", () => {
  const first = openListeningSocket(join(directory, "s"));
  expect(() => openListeningSocket(first.path)).toThrow(expect.objectContaining({ code: "EADDRINUSE" }));
  expect(existsSync(first.path)).toBe(true);
  first.close();
});

test("the longest path works and one byte more is refused", () => {
  const name = (length: number) => join(directory, "s".repeat(length - directory.length - 1));
  const socket = openListeningSocket(name(longestSocketPath));
  expect(existsSync(socket.path)).toBe(true);
  socket.close();
  expect(() => openListeningSocket(name(longestSocketPath + 1))).toThrow(RangeError);
});
