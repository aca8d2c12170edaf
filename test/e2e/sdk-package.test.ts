/** The packed tarball, installed into an empty project, as a program of somebody else would use it. */
import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Fleet, startFleet } from "./fleet.ts";

const run = promisify(execFile);
const root = join(import.meta.dirname, "../..");

let dir: string;
let fleet: Fleet;

beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), "dsec-package-"));
  fleet = await startFleet();
  // dist/ was built by the set-up of the tests
  await run("npm", ["pack", "--ignore-scripts", "--pack-destination", dir], { cwd: root });
  const [tarball] = (await readdir(dir)).filter((name) => name.endsWith(".tgz"));
  await mkdir(join(dir, "project"));
  await writeFile(join(dir, "project", "package.json"), '{"private":true,"type":"module"}');
  const install = ["install", "--prefer-offline", "--no-audit", "--no-fund", join(dir, tarball ?? "")];
  await run("npm", install, { cwd: join(dir, "project") });
  // npm fetches and unpacks every dependency
}, 300_000);

afterAll(async () => {
  await fleet?.[Symbol.asyncDispose]();
  await rm(dir, { recursive: true, force: true });
});

/** Runs a module of the project against the fleet. */
async function runModule(name: string, source: string): Promise<{ stdout: string; stderr: string }> {
  await writeFile(join(dir, "project", name), source);
  const env = { ...process.env, ...fleet.env };
  return run(process.execPath, [name], { cwd: join(dir, "project"), env });
}

describe("the installed package", () => {
  test("runs a container, a command in it, and ends it", async () => {
    const { stdout } = await runModule(
      "consumer.js",
      `
      import { DSecClient, DSecError } from "dsec";
      await using client = await DSecClient.open();
      await using sandbox = await client.runContainer(
        { image: "busybox", memoryMb: 64, cpus: 1, ttlRunningStop: 60, networkRules: { npm: false }, initUser: "root" },
        { timeout: 60 },
      );
      const { exitCode, stdout, stderr } = await sandbox.runShell("echo out; echo err >&2; exit 3");
      const missing = await sandbox.exec(["no-such-command"]).catch((error) => error);
      const ended = await sandbox.stop();
      console.log(JSON.stringify({
        exitCode, stdout, stderr,
        typed: missing instanceof DSecError, code: missing.code,
        state: ended.state, reason: ended.endReason,
      }));
      `,
    );
    expect(JSON.parse(stdout)).toEqual({
      exitCode: 3,
      stdout: "out\n",
      stderr: "err\n",
      typed: true,
      code: "command_not_found",
      state: "stopped",
      reason: "stopped",
    });
  });

  test("loads no server, no WebSocket and no schema library until they are needed", async () => {
    const { stdout } = await runModule(
      "loaded.js",
      `
      import { registerHooks } from "node:module";
      const loaded = [];
      registerHooks({ load: (url, context, next) => (url.startsWith("file:") && loaded.push(url), next(url, context)) });
      const { DSecClient } = await import("dsec");
      await using client = await DSecClient.open();
      await client.list();
      console.log(JSON.stringify(loaded));
      `,
    );
    const packages = (JSON.parse(stdout) as string[]).map(
      (url) => /node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(url)?.[1],
    );
    expect(new Set(packages)).toEqual(new Set(["dsec"]));
  });

  test("has types that a strict compiler takes", async () => {
    await mkdir(join(dir, "project", "node_modules", "@types"), { recursive: true });
    const types = join(dir, "project", "node_modules", "@types", "node");
    await symlink(join(root, "node_modules", "@types", "node"), types).catch(() => undefined);
    await writeFile(
      join(dir, "project", "consumer.ts"),
      `
      import { DSecClient, DSecError, type ErrorCode, type ExecResult, type Sandbox } from "dsec";
      const client: DSecClient = await DSecClient.open({ context: "here" });
      const sandbox: Sandbox = await client.runContainer({ image: "debian", memoryMb: 512, labels: { job: "a" } });
      const result: ExecResult = await sandbox.exec(["true"], { timeoutMs: 5, onStdout: (bytes) => void bytes.length });
      const text: string = result.stdout + result.cause;
      // @ts-expect-error: memory is a number
      await client.runContainer({ image: "debian", memoryMb: "512" });
      // @ts-expect-error: not a code of the table
      const code: ErrorCode = "no_such_code";
      for await (const event of client.watch()) if (event.type === "changed") console.log(event.sandbox.id, text, code);
      export const isOurs = (error: unknown): error is DSecError => error instanceof DSecError && error.ambiguous;
      `,
    );
    const compiler = {
      compilerOptions: {
        strict: true,
        noEmit: true,
        module: "nodenext",
        target: "es2024",
        lib: ["es2024", "esnext.disposable"],
        types: ["node"],
      },
      files: ["consumer.ts"],
    };
    await writeFile(join(dir, "project", "tsconfig.json"), JSON.stringify(compiler));
    const tsc = join(root, "node_modules", ".bin", "tsc");
    const compiled = await run(tsc, ["-p", "."], { cwd: join(dir, "project") }).catch(
      (error: { stdout: string }) => error,
    );
    expect(compiled.stdout).toBe("");
  });

  test("brings the command", async () => {
    const bin = join(dir, "project", "node_modules", ".bin", "dsec");
    const { stdout } = await run(bin, ["ls", "-o", "json"], { env: { ...process.env, ...fleet.env } });
    expect(Array.isArray(JSON.parse(stdout))).toBe(true);
  });
});
