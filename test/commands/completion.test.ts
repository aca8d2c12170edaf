import { execFileSync, spawnSync } from "node:child_process";
import { describe, expect, test } from "vitest";
import { completionModel } from "../../src/commands/completion-model.ts";
import { bashScript, fishScript, zshScript } from "../../src/commands/completion-scripts.ts";

const verbs = await completionModel();

/** What bash offers for a command line, as if Tab was pressed at its end. */
function complete(...words: readonly string[]): string[] {
  const script = `${bashScript(verbs)}
dsec() { echo stub-of-"$1"; }
COMP_WORDS=(dsec "$@"); COMP_CWORD=$#; _dsec
printf '%s\\n' "\${COMPREPLY[@]}"`;
  const output = execFileSync("bash", ["-c", script, "bash", ...words], { encoding: "utf8" });
  return output.split("\n").filter((line) => line !== "");
}

describe("completion in bash", () => {
  test("of verbs", () => {
    expect(complete("")).toEqual(expect.arrayContaining(["run", "exec", "ls", "up", "config"]));
    expect(complete("in")).toEqual(["inspect"]);
  });

  test("of a noun's verbs", () => {
    expect(complete("config", "use")).toEqual(["use-context"]);
    expect(complete("layer", "bu")).toEqual(["build"]);
    expect(complete("layer", "")).not.toContain("run");
  });

  test("of flags, the verb's and the global ones", () => {
    expect(complete("run", "--mem")).toEqual(["--memory"]);
    expect(complete("run", "--cont")).toEqual(["--context"]);
    expect(complete("layer", "build", "--if")).toEqual(["--if-missing"]);
  });

  test("of a flag's values", () => {
    expect(complete("ls", "-o", "")).toEqual(["table", "wide", "json", "ndjson", "yaml", "name"]);
    expect(complete("run", "--engine", "d")).toEqual(["docker"]);
    expect(complete("ls", "--state", "run")).toEqual(["running"]);
  });

  test("of sandboxes and contexts, by asking dsec", () => {
    expect(complete("stop", "")).toEqual(["stub-of-ls"]);
    expect(complete("config", "use-context", "")).toEqual(["stub-of-config"]);
  });
});

describe("completion scripts", () => {
  test.each([
    ["bash", bashScript],
    ["zsh", zshScript],
    ["fish", fishScript],
  ])("of %s name every verb and flag, with every quote closed", (_, render) => {
    const script = render(verbs);
    for (const { path, options } of verbs) {
      expect(script).toContain(path.at(-1));
      for (const { names } of options)
        for (const name of names) expect(script).toContain(name.replace(/^-+/, ""));
    }
    // all three quote alike, so bash can judge
    expect(spawnSync("bash", ["-n"], { input: script, encoding: "utf8" }).stderr).toBe("");
  });
});
