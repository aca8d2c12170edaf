import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, openSync } from "node:fs";
import { connect } from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import { LocalProvisioner } from "../../../src/daemon/local-provisioner.ts";
import { output, temporaryNode, tracesOf, type TemporaryNode } from "../temporary-node.ts";

const never = new AbortController().signal;

let node: TemporaryNode;
let cleanup: AsyncDisposableStack;
let provisioner: LocalProvisioner;

beforeEach(async () => {
  node = await temporaryNode();
  cleanup = new AsyncDisposableStack();
  cleanup.use(node);
  provisioner = await LocalProvisioner.open(node);
  cleanup.defer(async () => {
    await provisioner.sweep(new Set(), never);
    await provisioner.close();
    await nothingIsLeft();
  });
});

afterEach(async () => {
  await cleanup.disposeAsync();
});

async function nothingIsLeft(): Promise<void> {
  await expect.poll(async () => tracesOf(node), { timeout: 10_000 }).toEqual([]);
}

/** Stands for a backend's container: a network namespace that is not the daemon's, with nothing but loopback. */
async function startNamespace(): Promise<{ enter: string; fd: number }> {
  const child = spawn("unshare", ["--net", "sh", "-c", "echo up; exec sleep 1000"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(child, "close");
  await once(child.stdout, "data");
  const enter = `--net=/proc/${child.pid}/ns/net`;
  const fd = openSync(`/proc/${child.pid}/ns/net`, "r");
  cleanup.defer(async () => {
    closeSync(fd);
    child.kill("SIGKILL");
    await ended;
  });
  return { enter, fd };
}

/** What comes of a connection to a port that nobody listens on: refused by whoever has the address. */
async function reach(address = ""): Promise<unknown> {
  const socket = connect({ host: address, port: 9, timeout: 5000 });
  const [error] = await once(
    socket.once("timeout", () => socket.destroy(new Error("no answer"))),
    "close",
  )
    .then(() => [undefined])
    .catch((failure: unknown) => [failure]);
  return error instanceof Error && "code" in error ? error.code : error;
}

test("a link is put into a namespace that is there, and taken out of it though the namespace goes on", async () => {
  const prepared = await provisioner.link("n-linked", never);
  cleanup.defer(() => prepared.release());
  await expect(provisioner.link("n-linked", never)).rejects.toMatchObject({ code: "conflict" });
  const { enter, fd } = await startNamespace();
  await prepared.link?.join(fd);
  const { address } = prepared.link ?? {};
  expect(await output("nsenter", enter, "ip", "-4", "-brief", "addr")).toContain(`${address}/32`);
  expect(await reach(address)).toBe("ECONNREFUSED");
  await prepared.release();
  await prepared.release();
  expect(await output("nsenter", enter, "ip", "-brief", "link")).not.toContain("eth0");
  expect((await tracesOf(node)).join("\n")).not.toContain(`${address} dev`);
  // A start that was given up may come this far.
  await expect(prepared.link?.join(fd)).rejects.toMatchObject({ code: "cancelled" });
});

test("a link that cannot be made is an error, and leaves nothing", async () => {
  const prepared = await provisioner.link("n-linked", never);
  cleanup.defer(() => prepared.release());
  const { enter, fd } = await startNamespace();
  await output("nsenter", enter, "ip", "link", "add", "eth0", "type", "veth", "peer", "name", "x");
  await expect(prepared.link?.join(fd)).rejects.toMatchObject({ code: "backend_unavailable" });
  const { joinedLink } = prepared.record as { joinedLink: string };
  expect(await tracesOf(node)).not.toContain(`link ${joinedLink}`);
});

test("links of sandboxes that go on outlive a daemon; those that nobody has are swept", async () => {
  const [kept, lost] = [await provisioner.link("n-kept", never), await provisioner.link("n-lost", never)];
  const namespaces = [await startNamespace(), await startNamespace()] as const;
  await kept.link?.join(namespaces[0].fd);
  await lost.link?.join(namespaces[1].fd);
  await provisioner.close();
  provisioner = await LocalProvisioner.open(node);
  const adopted = await provisioner.adopt("n-kept", kept.record);
  cleanup.defer(() => adopted.release());
  expect(adopted.link?.address).toBe(kept.link?.address);
  const { joinedLink: lostLink } = lost.record as { joinedLink: string };
  const { joinedLink: keptLink } = kept.record as { joinedLink: string };
  expect(await provisioner.sweep(new Set(["n-kept"]), never)).toContainEqual({
    kind: "link",
    name: lostLink,
  });
  expect(await tracesOf(node)).toContain(`link ${keptLink}`);
  expect(await reach(kept.link?.address)).toBe("ECONNREFUSED");
  await adopted.release();
  expect(await tracesOf(node)).not.toContain(`link ${keptLink}`);
});
