import { expect, test } from "vitest";
import { renderReference } from "./render-reference.ts";

test("docs/cli.md says what the verbs say; `npx vitest run test/commands/reference.test.ts -u` writes it", async () => {
  await expect(await renderReference()).toMatchFileSnapshot("../../docs/cli.md");
});
