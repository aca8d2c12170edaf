import { expect, test } from "vitest";
import { never, sh } from "./fixture.ts";
import type { Suite } from "./suite.ts";

export function compositionSentences({ fixture, subject }: Suite): void {
  const { composes, root } = subject.capabilities;

  test.runIf(composes)(
    "a workspace and toolkits over the image are one tree, and all of it can be written",
    async () => {
      const { guest } = await fixture().startComposed([
        { "opt/project/main.py": "workspace", "opt/all": "workspace" },
        { "opt/one/tool.py": "one", "opt/all": "one", "opt/both": "one" },
        { "opt/two/tool.py": "two", "opt/all": "two", "opt/both": "two" },
      ]);
      expect((await sh(guest, "ls /opt; cat /opt/all /opt/both /opt/project/main.py; ls /bin/sh")).text).toBe(
        "all\nboth\none\nproject\ntwo\ntwotwoworkspace/bin/sh\n",
      );
      const write =
        "mkdir /opt/one/__pycache__ && echo x > /opt/one/__pycache__/tool.pyc && rm -r /opt/project && echo y > /opt/all";
      expect((await sh(guest, `${write} && ls /opt /opt/one && cat /opt/all`)).text).toBe(
        "/opt:\nall\nboth\none\ntwo\n\n/opt/one:\n__pycache__\ntool.py\ny\n",
      );
    },
  );

  test.runIf(root === "image")("a root that was composed outside is refused, not ignored", async () => {
    const { backend } = fixture().harness;
    const prepared = await fixture().harness.prepare(fixture().wish());
    const start = backend.start(
      { ...prepared.request, root: { type: "directory", path: "/nonexistent" } },
      never,
    );
    await expect(start).rejects.toMatchObject({ code: "unsupported" });
    await prepared.release();
  });
}
