import { writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { once } from "node:events";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type CommandResult, type Fleet, runDsec, startFleet } from "./fleet.ts";
import { sandboxFlags } from "./test-sandbox.ts";

let fleet: Fleet;

beforeAll(async () => {
  fleet = await startFleet();
  await fleet.dsec(["run", "-q", "--name", "box", ...sandboxFlags]);
});
afterAll(async () => {
  await fleet[Symbol.asyncDispose]();
});

/** What a refusal comes to: the code on stderr's first line, the exit code, and a stdout that ought to be empty. */
function refusalOf({ code: exit, stdout, stderr }: CommandResult): object {
  const [, code = stderr] = /^dsec: [^\n]+ \((\w+)\)$/m.exec(stderr) ?? [];
  return { code, exit, stdout };
}

function refusal(exit: number, code: string): object {
  return { code, exit, stdout: "" };
}

const withFlags = (...flags: string[]): string[] => ["run", ...flags, ...sandboxFlags];

describe("bad input is one clear error with its code and exit code", () => {
  test.each([
    ["no such verb", ["frobnicate"], 2, "invalid_argument"],
    ["no such flag", ["ls", "--bogus"], 2, "invalid_argument"],
    ["no such format", ["ls", "-o", "xml"], 2, "invalid_argument"],
    ["no such state", ["ls", "--state", "happy"], 2, "invalid_argument"],
    ["no such engine", ["run", "--engine", "podman", "busybox"], 2, "invalid_argument"],
    ["no reference", ["stop"], 2, "invalid_argument"],
    ["what is to be reclaimed", ["reclaim"], 2, "invalid_argument"],
    ["references and filters", ["rm", "box", "--all"], 2, "invalid_argument"],
    ["a bad reference", ["inspect", "No/Such"], 2, "invalid_argument"],
    ["an unknown reference", ["inspect", "nobody"], 125, "not_found"],
    ["an unknown reference to exec in", ["exec", "nobody", "--", "true"], 125, "not_found"],
    ["an image that is not there", ["run", "--engine", "runc", "nosuchimage"], 125, "image_not_found"],
    ["an image that cannot be", ["run", "Not An Image"], 125, "invalid_image_reference"],
    ["a bad name", withFlags("--name", "Not_A_Label"), 2, "invalid_argument"],
    ["a taken name", withFlags("--name", "box"), 125, "name_taken"],
    ["no memory", withFlags("--memory", "0"), 2, "invalid_argument"],
    ["negative memory", withFlags("--memory", "-5m"), 2, "invalid_argument"],
    ["absurd memory", withFlags("--memory", "900000t"), 2, "invalid_argument"],
    ["memory in bytes by mistake", withFlags("--memory", "512"), 2, "invalid_argument"],
    ["no cores", withFlags("--cpus", "0"), 2, "invalid_argument"],
    ["negative cores", withFlags("--cpus", "-1"), 2, "invalid_argument"],
    ["absurd cores", withFlags("--cpus", "1e9"), 2, "invalid_argument"],
    ["no processes", withFlags("--pids", "0"), 2, "invalid_argument"],
    ["no disk", withFlags("--disk", "0"), 2, "invalid_argument"],
    ["a negative ttl", withFlags("--ttl", "-5m"), 2, "invalid_argument"],
    ["a relative directory", withFlags("--workdir", "src"), 2, "invalid_argument"],
    ["a bad label", withFlags("-l", "=x"), 2, "invalid_argument"],
    ["a registry nobody knows", withFlags("--allow", "nmp"), 125, "unknown_registry"],
    ["a rule that is none", withFlags("--deny", "a b"), 2, "invalid_argument"],
    ["an unknown policy", withFlags("--network-policy", "nope"), 125, "not_found"],
    ["allowed and denied", withFlags("--allow", "npm", "--deny", "npm"), 2, "invalid_argument"],
    ["a terminal without one", ["exec", "-it", "box", "--", "true"], 2, "invalid_argument"],
    ["-i without a command", withFlags("-i"), 2, "invalid_argument"],
    ["an env file that is not there", withFlags("--env-file", "/no/such/file"), 2, "invalid_argument"],
    ["a command that is not there", ["exec", "box", "--", "nosuchcommand"], 127, "command_not_found"],
    ["a directory that is not there", ["exec", "-w", "/no/such", "box", "--", "true"], 125, "no_such_cwd"],
    ["nothing to change", ["update", "box"], 2, "invalid_argument"],
    ["recorded output that is not there", ["logs", "--exec", "nosuch", "box"], 125, "not_found"],
    ["an unknown context", ["ls", "--context", "nowhere"], 125, "config_invalid"],
    ["an address of another kind", ["ls", "--address", "ftp://x"], 2, "invalid_argument"],
    ["an address in the clear", ["ls", "--address", "http://192.0.2.1:1"], 2, "invalid_argument"],
    ["nobody there", ["ls", "--address", "unix:/tmp/nobody.sock"], 125, "coordinator_unreachable"],
    ["an unknown shell", ["completion", "powershell"], 2, "invalid_argument"],
  ] as const)("%s", async (_, argv, exit, code) => {
    expect(refusalOf(await fleet.dsec(argv))).toEqual(refusal(exit, code));
  });

  test("a prefix of several ids lists them", async () => {
    await fleet.dsec(["run", "-q", ...sandboxFlags]);
    expect(refusalOf(await fleet.dsec(["inspect", "local"]))).toEqual(refusal(125, "ambiguous_reference"));
  });

  test("a wrong token", async () => {
    expect(refusalOf(await fleet.dsec(["ls"], { env: { DSEC_TOKEN: "wrong-token-wrong-token" } }))).toEqual(
      refusal(125, "unauthenticated"),
    );
  });

  test("a token file that is not there", async () => {
    expect(refusalOf(await fleet.dsec(["ls", "--token-file", "/no/such"]))).toEqual(
      refusal(125, "config_invalid"),
    );
  });

  test("a config file that cannot be read, by file, line and column", async () => {
    const file = join(fleet.dataDir, "broken.yaml");
    await writeFile(file, "contexts:\n  lab:\n    adress: x\n");
    const result = await fleet.dsec(["ls"], { env: { DSEC_CONFIG: file } });
    expect(refusalOf(result)).toEqual(refusal(125, "config_invalid"));
    expect(result.stderr).toContain(`${file}:3:5: unknown key "adress"`);
  });

  test("more than a request may hold", async () => {
    const file = join(fleet.dataDir, "large.env");
    await writeFile(file, Array.from({ length: 40 }, (_, n) => `V${n}=${"x".repeat(50_000)}`).join("\n"));
    expect(refusalOf(await fleet.dsec(withFlags("--env-file", file)))).toEqual(
      refusal(125, "body_too_large"),
    );
  });

  test("a second fleet in the same place, also in the background", async () => {
    expect(refusalOf(await fleet.dsec(["up"]))).toEqual(refusal(125, "already_running"));
    expect(refusalOf(await fleet.dsec(["up", "-d"]))).toEqual(refusal(125, "already_running"));
    expect((await fleet.dsec(["ls"])).code).toBe(0);
  });

  test("a port that is taken; nothing is left running", async () => {
    const taken = createServer().listen(0, "127.0.0.1");
    await once(taken, "listening");
    const address = taken.address();
    const port = typeof address === "object" ? address?.port : undefined;
    const env = {
      ...fleet.env,
      DSEC_DATA_DIR: join(fleet.dataDir, "second"),
      DSEC_RUN_DIR: join(fleet.runDir, "second"),
      DSEC_INSTANCE: `${fleet.instance}b`,
    };
    try {
      const argv = ["up", "-d", "--network-range", "10.99.0.0/16", "--listen", `http://127.0.0.1:${port}`];
      expect(refusalOf(await runDsec(argv, env))).toEqual(refusal(125, "address_in_use"));
      expect(refusalOf(await runDsec(["ls"], env))).toEqual(refusal(125, "coordinator_unreachable"));
    } finally {
      taken.close();
    }
  });
});

describe("what failed leaves nothing behind", () => {
  test("neither refused creations nor commands that could not be started leave a sandbox", async () => {
    const before = (await fleet.dsec(["ls", "-a", "-q"])).stdout;
    await fleet.dsec(withFlags("--allow", "nmp"));
    await fleet.dsec([...withFlags(), "--", "nosuchcommand"]);
    expect((await fleet.dsec(["ls", "-a", "-q"])).stdout).toBe(before);
  });
});

describe("errors for programs", () => {
  test("are JSON beside JSON output, with code, retryable and ambiguous", async () => {
    const { code, stdout, stderr } = await fleet.dsec(["inspect", "-o", "json", "nobody"]);
    expect({ code, stdout }).toEqual({ code: 125, stdout: "" });
    expect(JSON.parse(stderr)).toMatchObject({ code: "not_found", retryable: false, ambiguous: false });
  });

  test("are JSON wherever DSEC_ERROR_FORMAT asks for it, usage errors too", async () => {
    const { code, stderr } = await fleet.dsec(["ls", "--bogus"], { env: { DSEC_ERROR_FORMAT: "json" } });
    expect(code).toBe(2);
    expect(JSON.parse(stderr)).toMatchObject({
      code: "invalid_argument",
      message: "unknown option '--bogus'",
    });
  });
});

describe("several references", () => {
  test("one that fails does not stop the others, and decides the exit code", async () => {
    const first = (await fleet.dsec(["run", "-q", ...sandboxFlags])).stdout.trim();
    const second = (await fleet.dsec(["run", "-q", ...sandboxFlags])).stdout.trim();
    const result = await fleet.dsec(["stop", first, "nobody", second]);
    expect(result).toMatchObject({ code: 125, stdout: `${first}\n${second}\n` });
    expect(result.stderr).toContain("(not_found)");
  });
});
