import { homedir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { ConfigFile } from "../../src/sdk/config.ts";
import { resolveSettings } from "../../src/sdk/settings.ts";

const config: ConfigFile = {
  path: "/etc/dsec/config.yaml",
  currentContext: "lab",
  contexts: {
    lab: { address: "https://lab.example:7443", "token-file": "~/lab-token", "ca-file": "lab.pem" },
    local: {},
  },
  common: { address: "https://common.example", instance: "common", "run-dir": "/run/common" },
};

describe("settings", () => {
  test("flag goes before environment, environment before context, context before the file's top level", () => {
    const address = (flags: object, environment: Record<string, string>): string =>
      resolveSettings(flags, environment, config).address;
    expect(address({ address: "unix:/flag" }, { DSEC_ADDRESS: "unix:/env" })).toBe("unix:/flag");
    expect(address({}, { DSEC_ADDRESS: "unix:/env" })).toBe("unix:/env");
    expect(address({}, {})).toBe("https://lab.example:7443");
    expect(address({ context: "local" }, {})).toBe("https://common.example");
    expect(address({}, { DSEC_CONTEXT: "local" })).toBe("https://common.example");
  });

  test("without any of them the local fleet is meant", () => {
    const none = { path: "/none", currentContext: undefined, contexts: {}, common: {} };
    const settings = resolveSettings({ "data-dir": "/data", "run-dir": "/run/x" }, {}, none);
    expect(settings).toMatchObject({
      address: "unix:/run/x/coordinator.sock",
      tokenFile: "/data/token",
      isTokenFileNamed: false,
      instance: "dsec",
      context: undefined,
    });
  });

  test("paths in the file are relative to it, or to the home directory", () => {
    const settings = resolveSettings({}, {}, config);
    expect(settings.tokenFile).toBe(join(homedir(), "lab-token"));
    expect(settings.caFile).toBe("/etc/dsec/lab.pem");
  });

  test("a token file given by flag goes before a token in the environment", () => {
    const environment = { DSEC_TOKEN: "secret" };
    expect(resolveSettings({}, environment, config).token).toBe("secret");
    expect(resolveSettings({ "token-file": "/t" }, environment, config).token).toBeUndefined();
  });

  test("an empty variable counts as not set", () => {
    expect(resolveSettings({}, { DSEC_ADDRESS: "", DSEC_CONTEXT: "" }, config).address).toBe(
      "https://lab.example:7443",
    );
  });

  test("a context that does not exist is an error that lists those that do", () => {
    expect(() => resolveSettings({ context: "nope" }, {}, config)).toThrow(
      expect.objectContaining({ code: "config_invalid", message: expect.stringContaining("lab, local") }),
    );
  });
});
