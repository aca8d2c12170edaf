import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { Journal } from "../../../../src/daemon/journal/journal.ts";
import { parseRule } from "../../../../src/protocol/network-rule-text.ts";
import type { SandboxPolicy } from "../../../../src/protocol/policy-in-force.ts";
import type { PolicyChange, PolicyPushResult } from "../../../../src/protocol/policy-push.ts";
import type { Sandbox, SandboxEvent } from "../../../../src/protocol/sandbox.ts";
import { TestDaemon } from "../../daemon-fixture.ts";

const rules = (...texts: string[]) =>
  texts.map((text) => parseRule(text.startsWith("-") ? "deny" : "allow", text.replace(/^[+-] /, "")));

async function apply(daemon: TestDaemon, body: object): Promise<PolicyChange[]> {
  return (await daemon.http.json<PolicyPushResult>("applyPolicy", { body })).items;
}

async function policyOf(daemon: TestDaemon, ref: string): Promise<SandboxPolicy> {
  return daemon.http.json("getSandboxPolicy", { params: { ref } });
}

const given = (...texts: string[]) => ({ policy: { rules: rules(...texts) } });

test("a sandbox has the policy it was made with: its base, and its own rules", async () => {
  const daemon = await TestDaemon.start();
  const { id, networkPolicy, spec } = await daemon.place({
    networkPolicy: { default: "deny", rules: rules("+ *.example.com") },
    networkRules: { pypi: true, npm: false },
  });
  expect(networkPolicy).toMatchObject({ revision: 1, default: "deny", rules: 3 });
  expect(spec.networkPolicy).toBeUndefined();
  expect(await policyOf(daemon, id)).toMatchObject({
    ...networkPolicy,
    sandbox: id,
    policy: { default: "deny", rules: rules("+ *.example.com", "+ pypi", "- npm") },
    warnings: [],
  });
  const open = await daemon.place({ networkPolicy: "open" });
  expect(open.networkPolicy).toMatchObject({ origin: { name: "open" }, default: "allow", rules: 0 });
  expect((await daemon.place()).networkPolicy).toMatchObject({ default: "deny", rules: 0 });
});

test("a change says what it changed, is told to watchers and written down", async () => {
  const daemon = await TestDaemon.start();
  const before = await daemon.place({ name: "web", networkRules: { npm: true } });
  const body = {
    given: { ...given("+ pypi", "- 10.0.0.0/8"), origin: { name: "strict", version: 3 } },
    to: { refs: ["web"] },
  };
  const [change] = await apply(daemon, body);
  const after = await daemon.get(before.id);
  expect(change).toEqual({
    id: before.id,
    name: "web",
    outcome: "changed",
    before: before.networkPolicy,
    after: after.networkPolicy,
    added: ["allow pypi", "deny 10.0.0.0/8"],
    removed: ["allow npm"],
    addedCount: 2,
    removedCount: 1,
    cut: 0,
    warnings: [],
  });
  expect(after.networkPolicy).toMatchObject({
    origin: { name: "strict", version: 3 },
    revision: 2,
    rules: 2,
  });
  expect(after.revision).toBeGreaterThan(before.revision);
  const { items } = await daemon.http.json<{ items: SandboxEvent[] }>("listEvents", {
    params: { ref: "web" },
  });
  expect(items.at(-1)).toMatchObject({
    type: "policy",
    message: "policy strict@3, revision 2: 2 rules more, 1 fewer",
  });
  const [again] = await apply(daemon, body);
  expect(again).toMatchObject({ outcome: "unchanged", after: after.networkPolicy });
});

test("a dry run says the same and changes nothing", async () => {
  const daemon = await TestDaemon.start();
  const { id } = await daemon.place();
  const body = { given: given("+ pypi"), to: { filter: {} }, dryRun: true };
  expect(await apply(daemon, body)).toMatchObject([{ id, outcome: "changed", added: ["allow pypi"] }]);
  expect((await daemon.get(id)).networkPolicy).toMatchObject({ revision: 1, rules: 0 });
});

test("sandboxes are chosen by label or reference; one that cannot change does not keep others from it", async () => {
  const daemon = await TestDaemon.start();
  const [a, b, other] = [
    await daemon.place({ labels: { job: "7" } }),
    await daemon.place({ labels: { job: "7" } }),
    await daemon.place({ labels: { job: "8" } }),
  ];
  const byLabel = await apply(daemon, { given: given("+ pypi"), to: { filter: { label: ["job=7"] } } });
  expect(byLabel.map(({ id }) => id).toSorted()).toEqual([a.id, b.id].toSorted());
  expect((await daemon.get(other.id)).networkPolicy.revision).toBe(1);

  await daemon.stop(b.id);
  const byRef = await apply(daemon, { given: given("+ npm"), to: { refs: [a.id, b.id, "nobody", a.id] } });
  expect(byRef.map(({ id, outcome, problem }) => [id, outcome, problem?.code])).toEqual([
    [a.id, "changed", undefined],
    [b.id, "failed", "sandbox_not_running"],
    ["nobody", "failed", "not_found"],
  ]);
});

test("an unknown registry is refused before anything changes", async () => {
  const daemon = await TestDaemon.start();
  const { id } = await daemon.place();
  await expect(apply(daemon, { given: given("+ nmp"), to: { filter: {} } })).rejects.toMatchObject({
    code: "unknown_registry",
    details: { registries: ["nmp"] },
  });
  expect((await daemon.get(id)).networkPolicy.revision).toBe(1);
});

test("an expected revision that is no longer there is a conflict; of many that expect it, one wins", async () => {
  const daemon = await TestDaemon.start();
  const { id } = await daemon.place();
  const attempts = await Promise.all(
    Array.from({ length: 8 }, async (_, index) =>
      apply(daemon, { given: given(`+ h${index}.example`), to: { refs: [id] }, expectedRevision: 1 }),
    ),
  );
  const outcomes = attempts.flat().map(({ outcome, problem }) => problem?.code ?? outcome);
  expect(outcomes.toSorted()).toEqual(["changed", ...Array.from({ length: 7 }, () => "conflict")].toSorted());
  expect((await daemon.get(id)).networkPolicy).toMatchObject({ revision: 2, rules: 1 });
});

test("policies outlive the daemon, and those that nothing refers to are forgotten", async () => {
  const daemon = await TestDaemon.start();
  const { id } = await daemon.place({ networkRules: { npm: true } });
  await apply(daemon, { given: given("+ pypi"), to: { refs: [id] } });
  await daemon.stop(id);
  const before = await policyOf(daemon, id);
  await daemon.leave();

  const next = await TestDaemon.start({ dir: daemon.dir });
  await next.running.recovered;
  expect(await policyOf(next, id)).toEqual(before);
  await next.leave();
  const journal = new Journal(join(daemon.dir, "data", "daemon", "journal.sqlite"));
  onTestFinished(() => journal.close());
  expect(journal.policyDigests()).toEqual([before.digest]);
});

test("a rule text, a name and an address are judged by the policy where nothing is enforced", async () => {
  const daemon = await TestDaemon.start();
  const { id } = await daemon.place({ networkRules: { pypi: true, "192.0.2.0/24:80": true, npm: false } });
  const probe = async (body: object) => daemon.http.json("testNetwork", { params: { ref: id }, body });
  expect(await probe({ host: "pypi.org", port: 443 })).toMatchObject({
    allowed: true,
    name: { by: { kind: "rule", text: "allow pypi" } },
  });
  expect(await probe({ host: "registry.npmjs.org", port: 443 })).toMatchObject({
    allowed: false,
    name: { by: { kind: "rule", text: "deny npm" } },
  });
  expect(await probe({ host: "pypi.org", port: 22 })).toMatchObject({
    allowed: false,
    name: { by: { kind: "default" } },
  });
  expect(await probe({ host: "192.0.2.9", port: 80 })).toMatchObject({ allowed: true });
  expect(await probe({ host: "169.254.169.254", port: 80 })).toMatchObject({
    allowed: false,
    addresses: [{ address: "169.254.169.254", by: { kind: "protected", range: "metadata" } }],
  });
  await daemon.stop(id);
  await expect(probe({ host: "pypi.org" })).rejects.toMatchObject({ code: "sandbox_not_running" });
});

test("a policy that the node has been given before is named by its digest; one that it has not is asked for", async () => {
  const daemon = await TestDaemon.start();
  const many = Array.from({ length: 100 }, (_, n) => `+ h${n}.example`);
  const place = async (more: object) => {
    const id = daemon.newId();
    const body = { id, owner: "alice", spec: { backend: "simulated", image: "none" }, ...more };
    return daemon.http.json<Sandbox>("placeSandbox", { params: { id }, body, idempotent: false });
  };
  const { networkPolicy } = await place({ networkPolicy: given(...many) });
  const { digest } = networkPolicy;
  const origin = { name: "web", version: 2 };
  expect((await place({ knownPolicy: { digest, origin } })).networkPolicy).toMatchObject({
    digest,
    origin,
    rules: 100,
  });
  const unknown = `sha256:${"0".repeat(64)}`;
  await expect(place({ knownPolicy: { digest: unknown } })).rejects.toMatchObject({ code: "unknown_policy" });
  await expect(place({ knownPolicy: { digest: "1" } })).rejects.toMatchObject({ code: "invalid_argument" });
  expect((await daemon.http.json<{ items: Sandbox[] }>("listSandboxes")).items).toHaveLength(2);
});

test("10,000 rules are taken with the sandbox and by a change", async () => {
  const daemon = await TestDaemon.start();
  const many = Array.from({ length: 10_000 }, (_, n) => `+ [2001:db8::${n.toString(16)}]:8000-8999/tcp`);
  const sandbox: Sandbox = await daemon.place({ networkPolicy: { rules: rules(...many) } });
  expect(sandbox.networkPolicy.rules).toBe(10_000);
  const [change] = await apply(daemon, { given: given(...many.slice(1)), to: { refs: [sandbox.id] } });
  expect(change).toMatchObject({ outcome: "changed", addedCount: 0, removedCount: 1 });
  await expect(
    daemon.place({ networkPolicy: { rules: rules(...many) }, networkRules: { npm: true } }),
  ).rejects.toMatchObject({ code: "invalid_argument" });
});
