import { mkdir, readdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { vi } from "vitest";
import { RuncBackend } from "../../src/backends/container/runc/runc-backend.ts";
import { compose, resolveUpperParts } from "../../src/daemon/layers/composition.ts";
import { openLayerStore } from "../../src/daemon/layers/layer-store.ts";
import { LocalProvisioner } from "../../src/daemon/local-provisioner.ts";
import type { ComposedRoot, ResolvedImage } from "../../src/daemon/provisioner.ts";
import { temporaryNode, type TemporaryNode } from "../daemon/temporary-node.ts";
import { never } from "./fixture.ts";
import type { Harness, LayerTree, PreparedStart, SandboxWish } from "./harness.ts";
import { cgroupsNamed } from "./leftover-cgroups.ts";
import { conformance } from "./suite.ts";

class RuncHarness implements Harness {
  backend: RuncBackend;
  readonly #node: TemporaryNode;
  readonly #provisioner: LocalProvisioner;
  readonly #image: ResolvedImage;

  constructor(node: TemporaryNode, provisioner: LocalProvisioner, image: ResolvedImage) {
    this.#node = node;
    this.#provisioner = provisioner;
    this.#image = image;
    this.backend = new RuncBackend(node);
  }

  async prepare(wish: SandboxWish): Promise<PreparedStart> {
    return this.#prepareFrom(wish, this.#image);
  }

  async prepareComposed(wish: SandboxWish, above: readonly LayerTree[]): Promise<PreparedStart> {
    const store = await openLayerStore(this.#node.layerStore);
    const references: string[] = [];
    for (const [index, tree] of above.entries()) {
      const from = join(this.#node.directory, wish.id, `${index}`);
      for (const [path, text] of Object.entries(tree)) {
        await mkdir(dirname(join(from, path)), { recursive: true });
        await writeFile(join(from, path), text);
      }
      const kind = index === 0 ? "workspace" : "toolkit";
      references.push((await store.build({ reference: `${wish.id}-${index}:1`, kind, from })).reference);
    }
    const [workspace, ...toolkits] = references;
    const resolve = (reference: string) => this.#provisioner.resolve(reference);
    const upper = await resolveUpperParts({ workspace, toolkits }, resolve);
    return this.#prepareFrom(wish, compose(this.#image, upper));
  }

  async #prepareFrom({ id, hostname, limits }: SandboxWish, composed: ComposedRoot): Promise<PreparedStart> {
    const options = { diskBytes: limits.diskBytes, network: true };
    const { root, network, started, release } = await this.#prepareRoot(id, composed, options);
    return {
      request: { id, hostname, env: {}, root, limits, ...(network === undefined ? {} : { network }) },
      started,
      release,
    };
  }

  async prepareImpossible(wish: SandboxWish): Promise<PreparedStart & { code: string }> {
    const prepared = await this.prepare(wish);
    const request = {
      ...prepared.request,
      network: { netnsPath: "/no/such/namespace", address: "10.0.0.2", nameServer: "10.0.0.1" },
    };
    return { ...prepared, request, code: "start_failed" };
  }

  async restart(): Promise<void> {
    await this.backend.close();
    this.backend = new RuncBackend(this.#node);
  }

  async leftovers(): Promise<string[]> {
    let found: string[] = [];
    // The kernel ends control groups and mounts a moment after their last user.
    await vi
      .waitUntil(async () => (found = await this.#find()).length === 0, { timeout: 5000 })
      .catch(() => undefined);
    return found;
  }

  async dispose(): Promise<void> {
    await this.backend.close();
    const other = new RuncBackend(this.#node);
    await other.sweep(new Set(), never);
    await other.close();
    await this.#provisioner.sweep(new Set(), never);
    await this.#provisioner.close();
    await this.#node[Symbol.asyncDispose]();
  }

  async #prepareRoot(
    id: string,
    composed: ComposedRoot,
    options: { diskBytes: number; network: boolean },
  ): Promise<
    Pick<PreparedStart, "started" | "release"> & Pick<PreparedStart["request"], "root" | "network">
  > {
    const prepared = await this.#provisioner.prepare(id, composed, options, never);
    return {
      root: prepared.root,
      ...(prepared.network === undefined ? {} : { network: prepared.network }),
      started: () => prepared.started(),
      release: () => prepared.release(),
    };
  }

  async #find(): Promise<string[]> {
    const { runDir, instance } = this.#node;
    const inRun = await Promise.all(
      ["sandboxes", "runc", "scratch"].map(async (folder) =>
        (await readdir(join(runDir, folder)).catch(() => [])).map((name) => `${folder}/${name}`),
      ),
    );
    return [...inRun.flat(), ...cgroupsNamed(new Set([`/${instance}/`]))];
  }
}

conformance({
  name: "container by runc",
  capabilities: new RuncBackend({ instance: "dsec-test", runDir: "/nonexistent" }).capabilities,
  async open() {
    const node = await temporaryNode();
    await (await openLayerStore(node.layerStore)).build({ reference: "busybox", from: "busybox" });
    const provisioner = await LocalProvisioner.open(node);
    const image = await provisioner.resolve("busybox");
    if (image === undefined) throw new Error("there is no busybox layer");
    return new RuncHarness(node, provisioner, image);
  },
});
