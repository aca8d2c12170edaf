import { once } from "node:events";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { DSecClient, DSecError, errorTable } from "../../src/sdk/index.ts";
import { resolveConnection } from "../../src/sdk/open-connection.ts";

/** A home with a config file, and the environment that leads there. */
async function home(config?: string): Promise<{ dir: string; environment: Record<string, string> }> {
  const dir = await mkdtemp(join(tmpdir(), "dsec-home-"));
  onTestFinished(async () => rm(dir, { recursive: true, force: true }));
  await mkdir(join(dir, "dsec"));
  await writeFile(join(dir, "dsec", "fleet.token"), "token-of-the-context\n");
  if (config !== undefined) await writeFile(join(dir, "dsec", "config.yaml"), config);
  const data = join(dir, "data");
  await mkdir(data);
  await writeFile(join(data, "token"), "token-of-this-machine\n");
  return {
    dir,
    environment: { XDG_CONFIG_HOME: dir, DSEC_DATA_DIR: data, DSEC_RUN_DIR: join(dir, "run") },
  };
}

const contexts = `
current-context: far
contexts:
  far:
    address: https://far.example:7443
    token-file: fleet.token
  near:
    address: http://127.0.0.1:7000
`;

describe("which fleet a client speaks to", () => {
  test("without anything: the one of this machine", async () => {
    const { dir, environment } = await home();
    expect(await resolveConnection({ environment })).toEqual({
      address: `unix:${dir}/run/coordinator.sock`,
      token: "token-of-this-machine",
      ca: undefined,
    });
  });

  test("the current context, with a token file relative to the config file", async () => {
    const { environment } = await home(contexts);
    expect(await resolveConnection({ environment })).toMatchObject({
      address: "https://far.example:7443",
      token: "token-of-the-context",
    });
  });

  test("an option goes before the environment, the environment before the context", async () => {
    const { environment } = await home(contexts);
    const given = {
      ...environment,
      DSEC_ADDRESS: "unix:/from/environment",
      DSEC_TOKEN: "token-of-environment",
    };
    expect(await resolveConnection({ environment: given })).toMatchObject({
      address: "unix:/from/environment",
      token: "token-of-environment",
    });
    const options = { environment: given, address: "unix:/from/option", token: "token-of-option" };
    expect(await resolveConnection(options)).toMatchObject({
      address: "unix:/from/option",
      token: "token-of-option",
    });
    expect(await resolveConnection({ environment, context: "near", token: "t" })).toMatchObject({
      address: "http://127.0.0.1:7000",
      token: "t",
    });
    const chosen = { ...environment, DSEC_CONTEXT: "near" };
    expect(await resolveConnection({ environment: chosen })).toMatchObject({
      address: "http://127.0.0.1:7000",
    });
  });

  test.each<[string, string, string]>([
    ["an unknown context", "current-context: nowhere\ncontexts: {}\n", "nowhere"],
    ["an unknown key", "adress: unix:/x\n", "adress"],
    ["a mistake in the YAML", "contexts: [\n", "config.yaml:"],
    ["a number for an address", "address: 7\n", "address must be text"],
  ])("%s in the config file is an error that names it", async (_, config, named) => {
    const { environment } = await home(config);
    await expect(DSecClient.open({ environment })).rejects.toMatchObject({
      code: "config_invalid",
      message: expect.stringContaining(named),
    });
  });

  test("an authority that cannot be read is an error that names it", async () => {
    const { environment } = await home();
    const missing = { ...environment, DSEC_CA_FILE: "/nowhere/ca.pem" };
    await expect(DSecClient.open({ environment: missing })).rejects.toMatchObject({
      code: "config_invalid",
      message: expect.stringContaining("/nowhere/ca.pem"),
    });
  });

  test("no fleet on this machine: says how to start one", async () => {
    const { dir, environment } = await home();
    await rm(join(dir, "data", "token"));
    await expect(DSecClient.open({ environment })).rejects.toMatchObject({
      code: "coordinator_unreachable",
      message: expect.stringContaining("dsec up"),
    });
  });

  test("a fleet elsewhere without a token is unauthenticated", async () => {
    const { dir, environment } = await home(contexts);
    await rm(join(dir, "dsec", "fleet.token"));
    await expect(DSecClient.open({ environment })).rejects.toMatchObject({ code: "unauthenticated" });
    // this machine's own must not be shown to others
    const open = DSecClient.open({ environment, context: "near", address: "https://other.example:7443" });
    await expect(open).rejects.toMatchObject({
      code: "unauthenticated",
      message: expect.stringContaining("https://other.example:7443"),
    });
  });

  test("what no header can carry is no token, whether given, in the environment or in a file", async () => {
    const { dir, environment } = await home();
    const open = (options: object) => DSecClient.open({ environment, ...options });
    await expect(open({ token: "a\nb" })).rejects.toMatchObject({ code: "invalid_argument" });
    await expect(open({ environment: { ...environment, DSEC_TOKEN: "töken" } })).rejects.toMatchObject({
      code: "config_invalid",
      message: expect.stringContaining("DSEC_TOKEN"),
    });
    await writeFile(join(dir, "data", "token"), Buffer.from([0xff, 0x00, 0x1b, 0x0a, 0x80]));
    await expect(open({})).rejects.toMatchObject({
      code: "unauthenticated",
      message: `${dir}/data/token holds no token`,
    });
  });

  test.each(["a\nb", "schlüssel", "", "x".repeat(256)])(
    "idempotency key %j is refused unsent",
    async (key) => {
      const { dir } = await home();
      await using client = await DSecClient.open({ address: `unix:${dir}/gone.sock`, token: "t" });
      const create = client.runContainer({ image: "busybox" }, { idempotencyKey: key });
      await expect(create).rejects.toMatchObject({ code: "invalid_argument" });
    },
  );

  test("a bad address is refused when the client is opened", async () => {
    const open = DSecClient.open({ address: "http://10.0.0.1:80", token: "t" });
    await expect(open).rejects.toMatchObject({ code: "invalid_argument", exitCode: 2 });
  });

  test("a fleet that has gone is unreachable at the first call, certainly without effect", async () => {
    const { dir } = await home();
    await using client = await DSecClient.open({ address: `unix:${dir}/gone.sock`, token: "t" });
    const create = client.runContainer({ image: "busybox" });
    await expect(create).rejects.toMatchObject({
      code: "coordinator_unreachable",
      ambiguous: false,
      exitCode: 125,
    });
  });
});

describe("a client and servers of other versions", () => {
  test("tolerates fields and events it does not know", async () => {
    const server = createServer((request, response) => {
      if (request.url?.startsWith("/v1/watch") === true)
        response.write('{"type":"weather","sun":true}\n{"type":"synced","cursor":"c","mood":"good"}\n');
      else
        response.end(
          JSON.stringify({ id: "n1-aaaaaaaaaa", state: "running", colour: "red", spec: { new: 1 } }),
        );
    });
    const { dir } = await home();
    server.listen(join(dir, "a.sock"));
    await once(server, "listening");
    onTestFinished(() => {
      server.closeAllConnections();
      server.close();
    });
    await using client = await DSecClient.open({ address: `unix:${dir}/a.sock`, token: "t" });
    const sandbox = await client.get("n1-aaaaaaaaaa");
    expect(sandbox.state).toBe("running");
    expect(sandbox.info).toMatchObject({ colour: "red" });
    const types: string[] = [];
    for await (const { type } of client.watch()) {
      types.push(type);
      if (type === "synced") break;
    }
    expect(types).toEqual(["weather", "synced"]);
  });
});

describe("errors", () => {
  test("are of one class whose code gives exit code and whether a retry can help", () => {
    const error = new DSecError("no_capacity", "no room", { retryAfterMs: 5 });
    expect(error).toBeInstanceOf(Error);
    expect(error.exitCode).toBe(errorTable.no_capacity.exit);
    expect(error.retryable).toBe(true);
    expect(error.ambiguous).toBe(false);
  });
});
