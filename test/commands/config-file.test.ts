import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { writeConfigFile } from "../../src/commands/config-file.ts";
import { configPath, readConfigFile } from "../../src/sdk/config.ts";

let folder: string;
let file: string;

beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "dsec-config-"));
  file = join(folder, "config.yaml");
});
afterEach(async () => {
  await rm(folder, { recursive: true });
});

describe("the config file", () => {
  test("is empty where there is none, or nothing but comments", async () => {
    const empty = { path: file, currentContext: undefined, contexts: {}, common: {} };
    expect(await readConfigFile(file)).toEqual(empty);
    await writeFile(file, "# nothing yet\n");
    expect(await readConfigFile(file)).toEqual(empty);
  });

  test("comes back as it was written, readable by its owner only", async () => {
    const config = {
      path: file,
      currentContext: "lab",
      contexts: { lab: { address: "https://lab.example:7443", "token-file": "~/lab" }, local: {} },
      common: { instance: "mine" },
    };
    await writeConfigFile(config);
    expect(await readConfigFile(file)).toEqual(config);
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    expect(await readFile(file, "utf8")).toContain("current-context: lab");
  });

  test.each([
    ["contexts: [", ":1:12: "],
    ["contexts:\n  lab:\n    adress: x\n", `:3:5: unknown key "adress"`],
    ["contexts: nope\n", ":1:1: contexts must be a mapping"],
    ["address: 5\n", ":1:1: address must be text"],
    ["instance: a\nelse: b\n", `:2:1: unknown key "else"`],
    ["current-context: gone\n", `:1:1: current-context names no context: "gone"`],
    ["- a\n", ":1:1: the file must be a mapping"],
  ])("%j is refused with the place of the mistake", async (content, message) => {
    await writeFile(file, content);
    await expect(readConfigFile(file)).rejects.toMatchObject({
      code: "config_invalid",
      message: expect.stringContaining(`${file}${message}`),
    });
  });

  test("is config_invalid when it cannot be read", async () => {
    await expect(readConfigFile(folder)).rejects.toMatchObject({
      code: "config_invalid",
      message: `${folder} cannot be read`,
    });
  });

  test("is found by DSEC_CONFIG, then XDG_CONFIG_HOME, then HOME", () => {
    expect(configPath({ DSEC_CONFIG: "/c", XDG_CONFIG_HOME: "/x", HOME: "/h" })).toBe("/c");
    expect(configPath({ XDG_CONFIG_HOME: "/x", HOME: "/h" })).toBe("/x/dsec/config.yaml");
    expect(configPath({ HOME: "/h" })).toBe("/h/.config/dsec/config.yaml");
  });
});
