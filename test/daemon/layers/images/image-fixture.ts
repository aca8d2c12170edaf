import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { gzipSync, zstdCompressSync } from "node:zlib";
import { findStaticBusybox } from "../../../../scripts/setup/find-command.mjs";

const run = promisify(execFile);

/** A member of a hand-made archive: nothing is checked, so that anything can be made. Names are bytes, one character each. */
export interface Member {
  readonly name: string;
  /** As in a header: `0` file, `1` hard link, `2` symlink, `3` character device, `4` block device, `5` directory, `6` FIFO. */
  readonly type?: string;
  readonly content?: string | Buffer;
  readonly link?: string;
  readonly mode?: number;
  readonly uid?: number;
  readonly gid?: number;
  readonly mtime?: number;
  readonly device?: readonly [major: number, minor: number];
  readonly xattrs?: Readonly<Record<string, string | Buffer>>;
  /** More pax records, in order. */
  readonly records?: readonly (readonly [key: string, value: string | Buffer])[];
}

export function tarOf(members: readonly Member[]): Buffer {
  return Buffer.concat([...members.flatMap(encode), Buffer.alloc(1024)]);
}

function encode(member: Member): Buffer[] {
  const content = Buffer.from(member.content ?? "");
  const records = [...(member.records ?? [])];
  for (const [name, value] of Object.entries(member.xattrs ?? {}))
    records.push([`SCHILY.xattr.${name}`, value]);
  if (member.name.length > 100) records.push(["path", Buffer.from(member.name, "latin1")]);
  if ((member.link ?? "").length > 100) records.push(["linkpath", Buffer.from(member.link ?? "", "latin1")]);
  const extended = Buffer.concat(records.map(([key, value]) => record(key, Buffer.from(value))));
  const head =
    extended.length === 0 ? [] : [header({ name: "pax", type: "x" }, extended.length), padded(extended)];
  return [...head, header(member, content.length), padded(content)];
}

function header(member: Member, size: number): Buffer {
  const block = Buffer.alloc(512);
  const octal = (at: number, length: number, value: number): void => {
    block.write(value.toString(8).padStart(length - 1, "0"), at, "latin1");
  };
  const type = member.type ?? "0";
  block.write(member.name.slice(0, 100), 0, "latin1");
  octal(100, 8, member.mode ?? (type === "5" ? 0o755 : 0o644));
  octal(108, 8, member.uid ?? 0);
  octal(116, 8, member.gid ?? 0);
  octal(124, 12, size);
  octal(136, 12, member.mtime ?? 1_500_000_000);
  block.write("        ", 148, "latin1");
  block.write(type, 156, "latin1");
  block.write((member.link ?? "").slice(0, 100), 157, "latin1");
  block.write("ustar\u000000", 257, "latin1");
  octal(329, 8, member.device?.[0] ?? 0);
  octal(337, 8, member.device?.[1] ?? 0);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return block;
}

function record(key: string, value: Buffer): Buffer {
  const rest = key.length + value.length + 3;
  let length = rest + String(rest).length;
  if (String(length).length > String(rest).length) length += 1;
  return Buffer.concat([Buffer.from(`${length} ${key}=`), value, Buffer.from("\n")]);
}

function padded(data: Buffer): Buffer {
  return Buffer.concat([data, Buffer.alloc((512 - (data.length % 512)) % 512)]);
}

export interface MadeImage {
  readonly layers: readonly (readonly Member[] | Buffer)[];
  readonly config?: object;
  /** As in an image's configuration; a step a layer unless given. */
  readonly history?: readonly object[];
  readonly compression?: "gzip" | "zstd" | "none";
}

const digestOf = (bytes: Buffer) => `sha256:${createHash("sha256").update(bytes).digest("hex")}`;

/** Writes an OCI layout with one image. Returns the digests of its manifest and of its layers' blobs. */
export async function writeLayout(
  directory: string,
  { layers, config = {}, history, compression = "gzip" }: MadeImage,
): Promise<{ readonly digest: string; readonly blobs: readonly string[] }> {
  await mkdir(join(directory, "blobs/sha256"), { recursive: true });
  const add = async (bytes: Buffer, mediaType: string) => {
    const digest = digestOf(bytes);
    await writeFile(join(directory, "blobs/sha256", digest.slice(7)), bytes);
    return { mediaType, digest, size: bytes.length };
  };
  const archives = layers.map((layer) => (Buffer.isBuffer(layer) ? layer : tarOf(layer)));
  const descriptors = [];
  for (const archive of archives) {
    const bytes = {
      gzip: () => gzipSync(archive),
      zstd: () => zstdCompressSync(archive),
      none: () => archive,
    };
    const suffix = compression === "none" ? "" : `+${compression}`;
    descriptors.push(await add(bytes[compression](), `application/vnd.oci.image.layer.v1.tar${suffix}`));
  }
  const image = {
    architecture: process.arch === "x64" ? "amd64" : process.arch,
    os: "linux",
    config,
    rootfs: { type: "layers", diff_ids: archives.map(digestOf) },
    history: history ?? archives.map(() => ({ created_by: "test" })),
  };
  const configBlob = await add(
    Buffer.from(JSON.stringify(image)),
    "application/vnd.oci.image.config.v1+json",
  );
  const manifest = await add(
    Buffer.from(
      JSON.stringify({
        schemaVersion: 2,
        mediaType: "application/vnd.oci.image.manifest.v1+json",
        config: configBlob,
        layers: descriptors,
      }),
    ),
    "application/vnd.oci.image.manifest.v1+json",
  );
  await writeFile(join(directory, "oci-layout"), '{"imageLayoutVersion":"1.0.0"}');
  await writeFile(join(directory, "index.json"), JSON.stringify({ schemaVersion: 2, manifests: [manifest] }));
  return { digest: manifest.digest, blobs: descriptors.map(({ digest }) => digest) };
}

export interface Registry extends AsyncDisposable {
  /** `127.0.0.1:port`. */
  readonly host: string;
  /** Where it keeps what it has. */
  readonly directory: string;
  /** Its requests so far, one a line. */
  log(): string;
  stop(): Promise<void>;
}

/** A real registry on this machine. @param htpasswd lines of users, whose passwords it then asks for */
export async function startRegistry(htpasswd?: string): Promise<Registry> {
  const directory = await mkdtemp(join(tmpdir(), "dsec-registry-"));
  const port = await freePort();
  const file = join(directory, "config.yml");
  await writeFile(join(directory, "htpasswd"), htpasswd ?? "");
  await writeFile(
    file,
    [
      "version: 0.1",
      "log: {level: info, accesslog: {disabled: false}}",
      `storage: {filesystem: {rootdirectory: ${join(directory, "data")}}, delete: {enabled: true}}`,
      `http: {addr: "127.0.0.1:${port}"}`,
      ...(htpasswd === undefined
        ? []
        : [`auth: {htpasswd: {realm: test, path: ${join(directory, "htpasswd")}}}`]),
      "",
    ].join("\n"),
  );
  let log = "";
  const server = spawn("setpriv", ["--pdeathsig", "TERM", "docker-registry", "serve", file], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  for (const stream of [server.stdout, server.stderr])
    stream.setEncoding("utf8").on("data", (chunk: string) => (log += chunk));
  const exited = once(server, "exit");
  const stop = async (): Promise<void> => {
    server.kill("SIGTERM");
    await exited;
  };
  const host = `127.0.0.1:${port}`;
  for (let tries = 0; ; tries += 1) {
    const answer = await fetch(`http://${host}/v2/`).catch(() => undefined);
    if (answer !== undefined) break;
    if (server.exitCode !== null || tries > 200) throw new Error(`the registry did not start:\n${log}`);
    await sleep(50);
  }
  return {
    host,
    directory: join(directory, "data"),
    log: () => log,
    stop,
    [Symbol.asyncDispose]: async () => {
      await stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/** Puts the image of a layout into a registry as it is. */
export async function push(
  layout: string,
  registry: Registry,
  name: string,
  ...more: string[]
): Promise<void> {
  const target = `docker://${registry.host}/${name}`;
  await skopeo("copy", "--quiet", "--dest-tls-verify=false", ...more, `oci:${layout}`, target);
}

export async function skopeo(...args: string[]): Promise<void> {
  await run("skopeo", ["--insecure-policy", ...args]);
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  return typeof address === "object" && address !== null ? address.port : 0;
}

/** Members of the smallest layer in which commands run. */
export async function busyboxLayer(): Promise<Member[]> {
  const busybox = findStaticBusybox();
  if (busybox === undefined) throw new Error("no static busybox here: npm run setup -- --tests installs it");
  const applets = ["sh", "id", "cat", "pwd", "sleep", "env", "echo", "ls"];
  return [
    { name: "bin/", type: "5" },
    { name: "bin/busybox", content: await readFile(busybox), mode: 0o755 },
    ...applets.map((name) => ({ name: `bin/${name}`, type: "2", link: "busybox" })),
    { name: "etc/", type: "5" },
    { name: "etc/passwd", content: "root:x:0:0:root:/root:/bin/sh\napp:x:1000:1000::/srv:/bin/sh\n" },
    { name: "etc/group", content: "root:x:0:\napp:x:1000:\n" },
    { name: "tmp/", type: "5", mode: 0o1777 },
    { name: "srv/", type: "5", uid: 1000, gid: 1000 },
  ];
}
