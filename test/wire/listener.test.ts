import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { chmod, lstat, mkdir, readdir, stat, writeFile } from "node:fs/promises";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { loadOrCreateToken } from "../../src/wire/server/authentication.ts";
import { newClient, newServer, temporaryDir } from "./wire-fixture.ts";

describe("listening on a Unix socket", () => {
  test("makes its directory 0700 and the socket 0600, and removes the socket at the end", async () => {
    const dir = join(await temporaryDir(), "run");
    const server = newServer();
    const address = await server.listen(`unix:${dir}/a.sock`);
    expect(address).toBe(`unix:${dir}/a.sock`);
    expect((await stat(dir)).mode & 0o777).toBe(0o700);
    expect((await lstat(join(dir, "a.sock"))).mode & 0o777).toBe(0o600);
    expect(await readdir(dir)).toEqual(["a.sock"]);
    await server.close();
    expect(await readdir(dir)).toEqual([]);
  });

  test("leaves the mode of a directory that was there alone", async () => {
    const dir = await temporaryDir();
    await chmod(dir, 0o755);
    await newServer().listen(`unix:${dir}/a.sock`);
    expect((await stat(dir)).mode & 0o777).toBe(0o755);
  });

  test("replaces the socket of a process that died", async () => {
    const path = join(await temporaryDir(), "a.sock");
    const script = `require("node:net").createServer().listen(${JSON.stringify(path)}, () => process.kill(process.pid, "SIGKILL"))`;
    expect(() => execFileSync(process.execPath, ["-e", script], { stdio: "ignore" })).toThrow("SIGKILL");
    expect((await lstat(path)).isSocket()).toBe(true);
    const address = await newServer().listen(`unix:${path}`);
    expect(await newClient(address).json("version")).toMatchObject({ role: "daemon" });
  });

  test("refuses a socket on which somebody listens, and leaves it to him", async () => {
    const path = join(await temporaryDir(), "a.sock");
    const address = await newServer().listen(`unix:${path}`);
    await expect(newServer().listen(address)).rejects.toMatchObject({ code: "already_running" });
    expect(await newClient(address).json("version")).toMatchObject({ role: "daemon" });
  });

  test("of two that start at once one wins, the other is told", async () => {
    const address = `unix:${join(await temporaryDir(), "a.sock")}`;
    const results = await Promise.allSettled([newServer().listen(address), newServer().listen(address)]);
    expect(results.map(({ status }) => status).toSorted()).toEqual(["fulfilled", "rejected"]);
    expect(await newClient(address).json("version")).toMatchObject({ role: "daemon" });
  });

  test("never replaces a file that is no socket", async () => {
    const path = join(await temporaryDir(), "a.sock");
    await writeFile(path, "precious");
    await expect(newServer().listen(`unix:${path}`)).rejects.toMatchObject({ code: "address_in_use" });
    expect((await lstat(path)).isFile()).toBe(true);
  });

  test("does not remove the socket of its successor", async () => {
    const dir = await temporaryDir();
    const first = newServer();
    await first.listen(`unix:${dir}/a.sock`);
    const other = createServer();
    other.listen(`${dir}/b.sock`);
    await once(other, "listening");
    execFileSync("mv", ["-f", `${dir}/b.sock`, `${dir}/a.sock`]);
    await first.close();
    expect(await readdir(dir)).toEqual(["a.sock"]);
    other.close();
  });
});

describe("listening on a port", () => {
  test("reports the port that 0 became", async () => {
    const address = await newServer().listen("http://127.0.0.1:0");
    expect(address).toMatch(/^http:\/\/127\.0\.0\.1:[1-9]\d+$/);
    expect(await newClient(address).json("version")).toMatchObject({ api: "v1" });
  });

  test("names the port that is taken", async () => {
    const address = await newServer().listen("http://127.0.0.1:0");
    await expect(newServer().listen(address)).rejects.toMatchObject({ code: "address_in_use" });
  });

  test("needs a certificate for https", async () => {
    await expect(newServer().listen("https://127.0.0.1:0")).rejects.toMatchObject({
      code: "invalid_argument",
      message: expect.stringContaining("certificate"),
    });
  });

  test("answers bytes that are no HTTP with a problem and closes", async () => {
    const address = new URL(await newServer().listen("http://127.0.0.1:0"));
    const socket = connect(Number(address.port), address.hostname);
    socket.end("\x16\x03\x01 hello\r\n\r\n");
    let text = "";
    for await (const chunk of socket) text += String(chunk);
    expect(text).toMatch(/^HTTP\/1\.1 400 /);
    expect(text).toContain('"code":"invalid_argument"');
  });
});

describe("the token file", () => {
  test("is made once, readable by its owner only, however many ask at the same time", async () => {
    const path = join(await temporaryDir(), "data", "token");
    const tokens = await Promise.all(Array.from({ length: 8 }, async () => loadOrCreateToken(path)));
    expect(new Set(tokens).size).toBe(1);
    expect(tokens[0]).toMatch(/^[\w-]{43}$/);
    expect((await stat(path)).mode & 0o777).toBe(0o600);
    expect(await loadOrCreateToken(path)).toBe(tokens[0]);
    expect(await readdir(join(path, ".."))).toEqual(["token"]);
  });

  test.each(["", "short", "with spaces in the middle of it"])("%j is not taken for one", async (content) => {
    const dir = await temporaryDir();
    await mkdir(join(dir, "data"));
    await writeFile(join(dir, "data", "token"), content);
    await expect(loadOrCreateToken(join(dir, "data", "token"))).rejects.toMatchObject({
      code: "config_invalid",
    });
  });
});
