import { execFile } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { dirname, join, relative } from "node:path";
import type { Readable } from "node:stream";
import { promisify } from "node:util";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { sandboxFlags } from "./test-sandbox.ts";
import { type CommandResult, runDsec, spawnDsec, startFleet } from "./fleet.ts";

let folder: string;
let env: Record<string, string>;
const simulated = ["--backend", "simulated", "any"];
const range = ["--network-range", "10.251.0.0/16"];

beforeEach(async () => {
  folder = await mkdtemp("/tmp/dsec-cli-");
  env = {
    DSEC_DATA_DIR: join(folder, "data"),
    DSEC_RUN_DIR: join(folder, "run"),
    DSEC_INSTANCE: `t${process.pid}`,
    DSEC_CONFIG: join(folder, "config.yaml"),
  };
});
afterEach(async () => {
  await dsec("down");
  await rm(folder, { recursive: true });
});

function dsec(...argv: readonly string[]): Promise<CommandResult> {
  return runDsec(argv, env);
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (typeof address !== "object" || address === null) throw new Error("no port");
  return address.port;
}

/** A certificate for 127.0.0.1, and its key. */
async function selfSigned(): Promise<{ cert: string; key: string }> {
  const [cert, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
  const subject = ["-subj", "/CN=dsec", "-addext", "subjectAltName=IP:127.0.0.1"];
  const how = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-days", "1", "-nodes"];
  await promisify(execFile)("openssl", ["req", "-x509", ...how, "-keyout", key, "-out", cert, ...subject]);
  return { cert, key };
}

describe("up and down", () => {
  test("up -d returns when the fleet answers; down ends it with its sandboxes and leaves nothing listening", async () => {
    const up = await dsec("up", "-d", ...range);
    expect({ code: up.code, stdout: up.stdout }).toEqual({ code: 0, stdout: "" });
    expect(up.stderr).toContain("dsec.log");
    expect((await stat(join(folder, "data", "token"))).mode & 0o777).toBe(0o600);
    const id = (await dsec("run", "-q", ...simulated)).stdout.trim();
    expect((await dsec("ls", "-q")).stdout).toBe(`${id}\n`);
    expect((await dsec("down")).code).toBe(0);
    expect((await dsec("ls")).stderr).toContain("(coordinator_unreachable)");
    const left = await readdir(join(folder, "run"), { recursive: true });
    expect(left.filter((name) => name.endsWith(".sock"))).toEqual([]);
  });

  test("what ended with the fleet is still readable in the next one", async () => {
    await dsec("up", "-d", ...range);
    const id = (await dsec("run", "-q", ...simulated)).stdout.trim();
    await dsec("down");
    await dsec("up", "-d", ...range);
    const [info] = JSON.parse((await dsec("inspect", id)).stdout);
    expect(info).toMatchObject({ state: "stopped", endReason: "stopped" });
  });

  test("down where nothing runs says so, and is no error", async () => {
    expect(await dsec("down")).toMatchObject({ code: 0, stdout: "", stderr: "no fleet runs here\n" });
  });

  test("down does not end a fleet that is elsewhere", async () => {
    const { code, stderr } = await dsec("down", "--address", "https://lab.example:7443");
    expect(code).toBe(2);
    expect(stderr).toContain("(invalid_argument)");
  });

  test.each(["SIGTERM", "SIGINT"] as const)("%s ends it gracefully", async (signal) => {
    await using fleet = await startFleet();
    await fleet.kill(signal);
    expect((await fleet.dsec(["ls"])).stderr).toContain("(coordinator_unreachable)");
    await fleet.restart();
    expect((await fleet.dsec(["ls"])).code).toBe(0);
  });

  test("down --keep leaves sandboxes running, and the next fleet takes them up", async () => {
    await using fleet = await startFleet();
    const id = (await fleet.dsec(["run", "-q", ...sandboxFlags])).stdout.trim();
    await fleet.dsec(["exec", id, "--", "sh", "-c", "echo kept > /tmp/file"]);
    expect((await fleet.dsec(["down", "--keep"])).code).toBe(0);
    expect((await fleet.dsec(["ls"])).code).toBe(125);
    await fleet.restart();
    expect((await fleet.dsec(["exec", id, "--", "cat", "/tmp/file"])).stdout).toBe("kept\n");
  });

  test("an exec whose fleet dies under it ends in an error that says so, never in success", async () => {
    await using fleet = await startFleet();
    const id = (await fleet.dsec(["run", "-q", ...sandboxFlags])).stdout.trim();
    const running = fleet.spawn(["exec", id, "--", "sh", "-c", "echo ready; sleep 1000"]);
    const output: Buffer[] = [];
    running.stderr?.on("data", (chunk: Buffer) => output.push(chunk));
    if (running.stdout === null) throw new Error("no stdout");
    await once(running.stdout, "data");
    await fleet.kill("SIGKILL");
    expect((await once(running, "close"))[0]).toBe(125);
    expect(Buffer.concat(output).toString()).toMatch(/\(connection_lost\)\n[^]*the outcome is unknown/);
    await fleet.restart();
    expect((await fleet.dsec(["exec", id, "--", "echo", "still here"])).stdout).toBe("still here\n");
  });

  test("a fleet that was killed starts again in the same place", async () => {
    await using fleet = await startFleet();
    await fleet.kill("SIGKILL");
    await fleet.restart();
    expect((await fleet.dsec(["nodes", "-o", "name"])).stdout).toBe("local\n");
  });

  test.each(["daemon/journal.sqlite", "coordinator/store.sqlite"])(
    "a %s that is no database is journal_corrupt, and nothing is left running",
    async (name) => {
      const file = join(folder, "data", name);
      await mkdir(dirname(file), { recursive: true });
      await writeFile(file, "this is no database, but long enough to be taken for one".repeat(100));
      const { code, stdout, stderr } = await dsec("up", "-d", ...range);
      expect({ code, stdout }).toEqual({ code: 125, stdout: "" });
      expect(stderr).toContain("(journal_corrupt)");
      expect((await dsec("ls")).stderr).toContain("(coordinator_unreachable)");
    },
  );

  test("options that cannot be meant are refused before anything runs", async () => {
    for (const flags of [
      ["--network-range", "nonsense"],
      ["--network-range", "10.1.2.3/16"],
      ["--network-range", "0.0.0.0/0"],
      ["--data-dir", "/dev/null"],
      ["--data-dir", "/proc/dsec"],
      ["--max-sandboxes", "0"],
      ["--name", "Not_A_Label"],
    ]) {
      const { code, stdout, stderr } = await dsec("up", "-d", ...flags);
      expect({ code, stdout }).toEqual({ code: 125, stdout: "" });
      expect(stderr).toContain("(config_invalid)");
    }
  });

  test("a layer store that is not there is refused and not made, unless sandboxes on record need the node", async () => {
    const store = join(folder, "mnt", "store");
    const flags = [...range, "--layer-store", store];
    const refusal = { code: 125, stderr: expect.stringContaining(`${store} is not there`) as string };
    expect(await dsec("up", "-d", ...flags)).toMatchObject(refusal);
    const daemon = ["--coordinator", "http://127.0.0.1:1", "--token-file", join(folder, "token")];
    await writeFile(join(folder, "token"), "a-token-that-is-long-enough");
    expect(await dsec("daemon", ...daemon, ...flags)).toMatchObject(refusal);
    expect(await readdir(folder)).not.toContain("mnt");
    // an unmounted file system leaves an empty directory behind
    await mkdir(store, { recursive: true });
    expect(await dsec("up", "-d", ...flags)).toMatchObject({ code: 0 });
    expect((await dsec("doctor")).stdout).toContain(`${store} holds no layer store`);
    expect(await dsec("run", "--engine", "runc", "busybox")).toMatchObject({
      code: 125,
      stderr: expect.stringContaining("(layer_store_unavailable)") as string,
    });
    expect(await readdir(store)).toEqual([]);
    await dsec("run", "-q", ...simulated);
    await dsec("down", "--keep");
    await rm(join(folder, "mnt"), { recursive: true });
    expect(await dsec("up", "-d", ...flags)).toMatchObject({ code: 0 });
    expect((await dsec("doctor")).stdout).toContain(`${store} is not there`);
    expect(await readdir(folder)).not.toContain("mnt");
  });

  test("a run directory whose path is too long for sockets is refused, and not made", async () => {
    const runDir = join(folder, "x".repeat(100));
    const { code, stderr } = await dsec("up", "-d", "--run-dir", runDir);
    expect(code).toBe(2);
    expect(stderr).toContain("(invalid_argument)");
    expect(await readdir(folder)).not.toContain("x".repeat(100));
  });

  test("where containers cannot work, up says so, here and in its log; what can work does", async () => {
    const nowhere = { PATH: join(folder, "bin") };
    const up = await runDsec(["up", "-d", ...range], env, { env: nowhere });
    expect(up.code).toBe(0);
    const said = /^containers (?:by runc )?do not work here: crun or runc is not installed/m;
    expect(up.stderr).toMatch(said);
    expect(up.stderr).toContain("dsec doctor says more");
    const log = (await readFile(join(folder, "data", "dsec.log"), "utf8")).split("\n");
    const warnings = log.filter((line) => line.includes('"level":40'));
    expect(warnings.map((line) => JSON.parse(line).msg)).toContainEqual(expect.stringMatching(said));
    expect((await dsec("run", "-q", ...simulated)).code).toBe(0);
  });
});

describe("over TCP", () => {
  test("a context reaches a fleet by https, with its authority and token", async () => {
    const { cert, key } = await selfSigned();
    const address = `https://127.0.0.1:${await freePort()}`;
    await dsec("up", "-d", ...range, "--listen", address, "--tls-cert", cert, "--tls-key", key);
    const token = join(folder, "data", "token");
    const remote = { DSEC_CONFIG: join(folder, "remote.yaml"), DSEC_RUN_DIR: join(folder, "nothing-here") };
    const there = (...argv: string[]): Promise<CommandResult> => runDsec(argv, remote);
    const given = ["--address", address, "--token-file", relative(process.cwd(), token), "--ca-file", cert];
    expect((await there("config", "set-context", "lab", ...given)).code).toBe(0);
    expect((await there("config", "use-context", "lab")).code).toBe(0);
    expect((await there("run", "-q", ...simulated, "--", "echo", "over", "TLS")).stdout).toBe("over TLS\n");
    expect((await there("config", "get-contexts", "-o", "name")).stdout).toBe("lab\n");
    expect((await there("config", "current-context")).stdout).toBe("lab\n");
    expect((await there("config", "view", "-o", "json")).stdout).toContain(address);
    expect((await there("config", "delete-context", "lab")).code).toBe(0);
    expect((await there("config", "current-context")).stderr).toContain("(not_found)");
  });

  test("a listener without TLS is refused beyond loopback, and https without a certificate", async () => {
    for (const [listen, code] of [
      ["http://0.0.0.0:1", 2],
      ["https://127.0.0.1:0", 2],
    ] as const) {
      const result = await dsec("up", "-d", ...range, "--listen", listen);
      expect({ code: result.code, stdout: result.stdout }).toEqual({ code, stdout: "" });
      expect(result.stderr).toContain("(invalid_argument)");
    }
  });
});

describe("coordinator and daemon as processes of their own", () => {
  test("make a fleet: the daemon registers, sandboxes run, both end on SIGTERM", async () => {
    const coordinator = spawnDsec(["coordinator"], env);
    if (coordinator.stderr === null) throw new Error("no stderr");
    await said(coordinator.stderr, "the coordinator listens");
    const address = `unix:${join(folder, "run", "coordinator.sock")}`;
    const daemon = spawnDsec(["daemon", "--name", "node-1", "--coordinator", address, ...range], env);
    if (daemon.stderr === null) throw new Error("no stderr");
    await said(daemon.stderr, "registered");
    const made = await dsec("run", "-q", ...simulated);
    expect(made.stdout).toMatch(/^node-1-/);
    const [node] = JSON.parse((await dsec("nodes", "-o", "json")).stdout);
    expect(node).toMatchObject({ name: "node-1", health: "healthy" });
    for (const running of [daemon, coordinator]) {
      const ended = once(running, "exit");
      running.kill("SIGTERM");
      expect(await ended).toEqual([0, null]);
    }
  });

  test("a daemon without a coordinator is a usage error", async () => {
    expect((await dsec("daemon")).code).toBe(2);
  });
});

describe("without a fleet", () => {
  test("doctor probes this machine, and exits by whether containers work", async () => {
    const { code, stdout, stderr } = await dsec("doctor", "-o", "json");
    const reports = JSON.parse(stdout) as { backend: string; works: boolean; findings: { fix?: string }[] }[];
    expect(stderr).toContain("probing this machine");
    expect(reports.map(({ backend }) => backend)).toEqual(expect.arrayContaining(["container", "simulated"]));
    const works = reports.some((report) => report.backend === "container" && report.works);
    expect(code).toBe(works ? 0 : 125);
  });

  test("help, version, completion and config work", async () => {
    const { version } = JSON.parse(await readFile("package.json", "utf8"));
    expect((await dsec("--help")).code).toBe(0);
    expect(JSON.parse((await dsec("version", "-o", "json")).stdout)).toEqual({ client: version });
    expect((await dsec("completion", "bash")).stdout).toContain("complete -o default -F _dsec dsec");
    expect((await dsec("config", "get-contexts", "-o", "json")).stdout).toBe("[]\n");
  });
});

async function said(stream: Readable, words: string): Promise<void> {
  let text = "";
  for await (const chunk of stream.iterator({ destroyOnReturn: false })) {
    text += String(chunk);
    if (text.includes(words)) return;
  }
  throw new Error(`it ended without saying ${words}: ${text}`);
}
