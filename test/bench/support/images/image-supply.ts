/** Where both contenders take the same images from: a registry and a layer store at the other end of the link. */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { importImage } from "../../../../src/daemon/layers/images/image-import.ts";
import { openLayerStore } from "../../../../src/daemon/layers/layer-store.ts";
import { runProgram } from "../../../../src/daemon/resources/program.ts";
import type { ContainerArgs } from "../../../../src/sdk/client.ts";
import { fixed, type Report } from "../report.ts";
import type { ImageBuilder } from "./image-builder.ts";
import { imageRecipes, workspaceRecipe } from "./recipes.ts";
import type { ThrottledLink } from "./throttled-link.ts";

const registryPort = 5000;
const storePort = 8080;
const mebibyte = 2 ** 20;

type Layers = Pick<ContainerArgs, "image" | "workspace" | "toolkits">;

export class ImageSupply {
  /** `address:port` of the registry. */
  readonly registry: string;
  /** The layer store, as `--layer-store` takes it. */
  readonly remoteStore: string;
  /** The same layer store on this machine. */
  readonly storeDirectory: string;
  readonly #sizes: ReadonlyMap<string, string[]>;

  private constructor(link: ThrottledLink, storeDirectory: string, sizes: ReadonlyMap<string, string[]>) {
    this.registry = `${link.address}:${registryPort}`;
    this.remoteStore = `rclone::webdav,url="http://${link.address}:${storePort}":`;
    this.storeDirectory = storeDirectory;
    this.#sizes = sizes;
  }

  /** Builds and publishes what is not there yet, and starts the servers. @param directory keeps all of it */
  static async open(builder: ImageBuilder, directory: string, link: ThrottledLink): Promise<ImageSupply> {
    const storeDirectory = join(directory, "store");
    const registryConfig = join(directory, "registry.json");
    await writeFile(
      registryConfig,
      JSON.stringify({
        version: 0.1,
        log: { level: "error" },
        storage: { filesystem: { rootdirectory: join(directory, "registry") } },
        http: { addr: `0.0.0.0:${registryPort}` },
      }),
    );
    await link.serve(registryPort, "docker-registry", ["serve", registryConfig]);
    const sizes = new Map<string, string[]>();
    const store = await openLayerStore(storeDirectory);
    const base = await builder.base();
    const layer = async (reference: string, kind: "base" | "toolkit" | "workspace", from: string) =>
      store.build({ reference, kind, from, ifMissing: true });
    await layer("bench-base:1", "base", base);
    for (const { name, packages, sources } of imageRecipes) {
      const upper = await builder.upper(name, packages, sources);
      const layout = await builder.ociLayout(name, upper);
      const imported = await builder.made(`imported-${name}`, async (into) => {
        const spec = { source: `oci:${layout}:latest`, name: `bench-image-${name}:1` };
        const { bytes } = await importImage(store, spec, { directory: join(directory, "imports") });
        await writeFile(join(into, "bytes"), `${bytes}`);
      });
      const bytes = Number(await readFile(join(imported, "bytes"), "utf8"));
      await builder.made(`pushed-${name}`, async () => {
        const target = `docker://${link.address}:${registryPort}/${name}:1`;
        await runProgram("skopeo", ["copy", "--dest-tls-verify=false", `oci:${layout}:latest`, target]);
      });
      const packed = await packedBytes(layout);
      sizes.set(name, [fixed(bytes / mebibyte, 0), fixed(packed / mebibyte, 0)]);
    }
    await layer("bench-kernel:1", "toolkit", await builder.upper("kernel", workspaceRecipe.packages));
    const tree = await builder.made("workspace", async (into) => workspaceTree(builder, into));
    const workspace = await layer("bench-linux:1", "workspace", join(tree, "tree"));
    const archive = await layer("bench-archive:1", "workspace", join(tree, "archive"));
    sizes.set("workspace", [
      fixed(workspace.bytes / mebibyte, 0),
      `${fixed(archive.bytes / mebibyte, 0)} (tar.gz)`,
    ]);
    const serve = ["serve", "webdav", storeDirectory, "--addr", `0.0.0.0:${storePort}`];
    await link.serve(storePort, "rclone", [...serve, "--config", "/dev/null"]);
    return new ImageSupply(link, storeDirectory, sizes);
  }

  /** What a sandbox of that image is made from. */
  readonly specOf = (name: string): Layers => ({ image: `bench-image-${name}:1` });

  readonly workspaceSpec: Layers = {
    image: "bench-base:1",
    workspace: "bench-linux:1",
    toolkits: ["bench-kernel:1"],
  };

  /** The workspace as an archive in a layer: read on demand like all else, unpacked by each sandbox. */
  readonly archiveSpec: Layers = { ...this.workspaceSpec, workspace: "bench-archive:1" };

  /** The registry's name of an image. */
  readonly imageOf = (name: string): string => `${this.registry}/${name}:1`;

  async describe(report: Report): Promise<void> {
    report.table(
      "What is run",
      ["", "MB of files", "MB in the registry", "work in each sandbox"],
      [...this.#sizes].map(([name, sizes]) => [
        name,
        ...sizes,
        `\`${(imageRecipes.find((recipe) => recipe.name === name) ?? workspaceRecipe).work.replaceAll("|", "\\|")}\``,
      ]),
    );
  }
}

/** Of the layers of an OCI layout. */
async function packedBytes(layout: string): Promise<number> {
  const read = async (file: string): Promise<unknown> =>
    JSON.parse(await readFile(join(layout, file), "utf8")) as unknown;
  const index = (await read("index.json")) as { manifests: { digest: string }[] };
  const hex = (index.manifests[0]?.digest ?? "").replace("sha256:", "");
  const manifest = (await read(join("blobs/sha256", hex))) as { layers: { size: number }[] };
  return manifest.layers.reduce((sum, { size }) => sum + size, 0);
}

/** `tree` with the workspace at its place, `archive` with a tar.gz of it. */
async function workspaceTree(builder: ImageBuilder, into: string): Promise<void> {
  const upper = await builder.upper("linux-source", [workspaceRecipe.package]);
  const script = `
mkdir -p "$2/tree/work/linux" "$2/archive"
tar -C "$2/tree/work/linux" --strip-components=1 --no-same-owner -xf "$1"/usr/src/linux-source-*.tar.xz
tar -C "$2/tree" -czf "$2/archive/workspace.tar.gz" work`;
  await runProgram("bash", ["-euc", script, "workspace", upper, into]);
}
