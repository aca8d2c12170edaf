import { spawn } from "node:child_process";
import { createHash, type Hash } from "node:crypto";
import { once } from "node:events";
import { createReadStream, createWriteStream } from "node:fs";
import { lstat, mkdir, readdir, rename, rm, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import { Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createGzip } from "node:zlib";

/** A layer of an image as registries carry it: a gzipped tar. */
export interface OciLayer {
  readonly path: string;
  /** Of the gzipped tar. */
  readonly digest: string;
  readonly bytes: number;
  /** Digest of the tar. */
  readonly diffId: string;
}

/** Packs the upper directory of an overlay, its whiteouts as OCI's. */
export async function packLayer(directory: string, into: string): Promise<OciLayer> {
  const whiteouts = await whiteoutsIn(directory);
  const marks = `${into}.marks`;
  await mkdir(marks, { recursive: true });
  for (const { folder, name } of whiteouts) {
    await mkdir(join(marks, folder), { recursive: true });
    await writeFile(join(marks, folder, `.wh.${name}`), "");
  }
  const exclude = whiteouts.map(({ folder, name }) => `--exclude=./${join(folder, name)}`);
  const tar = spawn(
    "tar",
    [
      "--create",
      "--numeric-owner",
      "--sort=name",
      "--anchored",
      "--no-wildcards",
      ...exclude,
      `--directory=${directory}`,
      ".",
      ...(whiteouts.length > 0 ? [`--directory=${marks}`] : []),
      // only the marks: the folders that hold them have the other tree's owners and modes
      ...whiteouts.map(({ folder, name }) => `./${join(folder, `.wh.${name}`)}`),
    ],
    { stdio: ["ignore", "pipe", "inherit"] },
  );
  const closed = once(tar, "close");
  const [plain, packed] = [createHash("sha256"), createHash("sha256")];
  let bytes = 0;
  await pipeline(
    tar.stdout,
    hashing(plain),
    createGzip(),
    hashing(packed, (length) => (bytes += length)),
    createWriteStream(into),
  );
  const [code] = (await closed) as [number | null];
  if (code !== 0) throw new Error(`tar of ${directory} failed with ${code}`);
  await rm(marks, { recursive: true });
  return {
    path: into,
    bytes,
    digest: `sha256:${packed.digest("hex")}`,
    diffId: `sha256:${plain.digest("hex")}`,
  };
}

/** Writes an OCI image layout with one image, which skopeo reads as `oci:DIRECTORY:latest`. Takes the layers' files. */
export async function writeOciLayout(directory: string, layers: readonly OciLayer[]): Promise<void> {
  const blobs = join(directory, "blobs", "sha256");
  await mkdir(blobs, { recursive: true });
  const add = async (content: object): Promise<{ digest: string; size: number }> => {
    const text = JSON.stringify(content);
    const hex = createHash("sha256").update(text).digest("hex");
    await writeFile(join(blobs, hex), text);
    return { digest: `sha256:${hex}`, size: Buffer.byteLength(text) };
  };
  for (const { path, digest } of layers) {
    const target = join(blobs, digest.slice("sha256:".length));
    await pipeline(createReadStream(path), createWriteStream(`${target}.part`));
    await rename(`${target}.part`, target);
  }
  const config = await add({
    architecture: process.arch === "x64" ? "amd64" : process.arch,
    os: "linux",
    config: { Env: ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"], Cmd: ["sh"] },
    rootfs: { type: "layers", diff_ids: layers.map(({ diffId }) => diffId) },
  });
  const kind = "application/vnd.oci.image";
  const manifest = await add({
    schemaVersion: 2,
    mediaType: `${kind}.manifest.v1+json`,
    config: { mediaType: `${kind}.config.v1+json`, ...config },
    layers: layers.map(({ digest, bytes }) => ({
      mediaType: `${kind}.layer.v1.tar+gzip`,
      digest,
      size: bytes,
    })),
  });
  const reference = {
    mediaType: `${kind}.manifest.v1+json`,
    ...manifest,
    annotations: { "org.opencontainers.image.ref.name": "latest" },
  };
  await writeFile(join(directory, "oci-layout"), JSON.stringify({ imageLayoutVersion: "1.0.0" }));
  await writeFile(
    join(directory, "index.json"),
    JSON.stringify({ schemaVersion: 2, manifests: [reference] }),
  );
}

function hashing(hash: Hash, onLength: (bytes: number) => void = () => {}): Transform {
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      hash.update(chunk);
      onLength(chunk.length);
      done(null, chunk);
    },
  });
}

async function whiteoutsIn(directory: string): Promise<{ folder: string; name: string }[]> {
  const found: { folder: string; name: string }[] = [];
  for (const entry of await readdir(directory, { recursive: true, withFileTypes: true })) {
    if (!entry.isCharacterDevice()) continue;
    if ((await lstat(join(entry.parentPath, entry.name))).rdev === 0)
      found.push({ folder: relative(directory, entry.parentPath), name: entry.name });
  }
  return found;
}
