import { mkdir, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { openLayerStore } from "../../../../src/daemon/layers/layer-store.ts";
import { findProgram, runProgram } from "../../../../src/daemon/resources/program.ts";
import { busybox, containerNode } from "../../container-fixture.ts";
import { TestDaemon, temporaryDir } from "../../daemon-fixture.ts";
import { makeAuthority } from "./authority.ts";

const bundle = "/etc/ssl/certs/ca-certificates.crt";

async function sha256(path: string): Promise<string> {
  return (await runProgram("sha256sum", [path])).split(" ")[0] ?? "";
}

async function cat(daemon: TestDaemon, id: string, path: string): Promise<string> {
  return (await daemon.run(id, ["cat", path])).stdout;
}

test("sandboxes trust the node's authorities in every place where their image has its own", async () => {
  const { node, start } = await containerNode();
  const authority = await makeAuthority("inspection");
  const caBundle = join(node.directory, "ca.pem");
  await writeFile(caBundle, authority.cert);
  // As Fedora has them: links that end in one file, the last in the directory of another.
  const root = join(await temporaryDir(), "root");
  for (const path of [
    "etc/pki/tls/certs",
    "etc/pki/ca-trust/extracted/pem",
    "etc/pki/ca-trust/source/anchors",
  ])
    await mkdir(join(root, path), { recursive: true });
  await mkdir(join(root, "bin"));
  await runProgram("cp", [findProgram("busybox") ?? "busybox", join(root, "bin/busybox")]);
  await symlink("busybox", join(root, "bin/cat"));
  await writeFile(join(root, "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"), "image's own");
  await symlink(
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    join(root, "etc/pki/tls/certs/ca-bundle.crt"),
  );
  const store = await openLayerStore(node.layerStore);
  await store.build({ reference: "hat:1", from: root });
  const daemon = await start({ caBundle });

  const { id } = await daemon.place({ ...busybox, image: "hat:1" });
  const pem = authority.cert.trim();
  for (const path of [
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/pki/tls/certs/ca-bundle.crt",
    bundle,
  ]) {
    const content = await cat(daemon, id, path);
    expect([path, content.startsWith("image's own\n"), content.split(pem).length - 1]).toEqual([
      path,
      true,
      1,
    ]);
  }
  expect(await cat(daemon, id, "/etc/ssl/dsec-ca.pem")).toContain(pem);
  expect((await cat(daemon, id, "/usr/local/share/ca-certificates/dsec-1.crt")).trim()).toBe(pem);
  expect((await cat(daemon, id, "/etc/pki/ca-trust/source/anchors/dsec-1.crt")).trim()).toBe(pem);

  // Another of the same layer, by a daemon without authorities, has none: layers stay as they are.
  await daemon.remove(id);
  await daemon.leave();
  const without = await start();
  const plain = await without.place({ ...busybox, image: "hat:1" });
  expect(await cat(without, plain.id, "/etc/pki/tls/certs/ca-bundle.crt")).toBe("image's own");

  // One that an earlier daemon made gets them when it is taken up.
  await without.leave();
  const later = await start({ caBundle });
  expect(await cat(later, plain.id, bundle)).toContain(pem);
});

const engines = [
  { engine: "runc", image: "busybox" },
  // An image without any directory that authorities could be in.
  { engine: "docker", image: "dsec-test-busybox:latest" },
] as const;

test.each(engines)(
  "programs of $engine are told by the usual variables, under what sandbox and command say",
  async (chosen) => {
    const { node, start } = await containerNode();
    const caBundle = join(node.directory, "ca.pem");
    await writeFile(caBundle, (await makeAuthority("inspection")).cert);
    const dockerSocket = process.env["DSEC_TEST_DOCKER_SOCKET"];
    const daemon = await start({
      caBundle,
      backends: [chosen.engine],
      ...(dockerSocket !== undefined && { dockerSocket }),
    });
    const { id } = await daemon.place({ ...busybox, ...chosen, env: { PIP_CERT: "/mine.pem" } });
    const { stdout } = await daemon.run(id, ["env"], { env: { CURL_CA_BUNDLE: "/other.pem" } });
    const found = Object.fromEntries(
      stdout
        .trim()
        .split("\n")
        .map((line) => line.split("=", 2)),
    );
    expect(found).toMatchObject({
      SSL_CERT_FILE: bundle,
      REQUESTS_CA_BUNDLE: bundle,
      GIT_SSL_CAINFO: bundle,
      NODE_EXTRA_CA_CERTS: "/etc/ssl/dsec-ca.pem",
      PIP_CERT: "/mine.pem",
      CURL_CA_BUNDLE: "/other.pem",
    });
    // What the image lacks is made: the variables lead to something.
    expect(await cat(daemon, id, bundle)).toContain("BEGIN CERTIFICATE");
  },
);

test("a sandbox's links lead nowhere but into itself, also when authorities are written after a restart", async () => {
  const { node, start } = await containerNode();
  const authority = await makeAuthority("inspection");
  const caBundle = join(node.directory, "ca.pem");
  await writeFile(caBundle, authority.cert);
  const outside = join(node.directory, "outside.crt");
  await writeFile(outside, "the node's");
  const before = await sha256(outside);
  const first = await start();
  const { id } = await first.place(busybox);
  const script = `mkdir -p /etc/ssl/certs /usr/local/share/ca-certificates && ln -sf ${outside} ${bundle} && ln -sf /proc/1/root${outside} /etc/ssl/dsec-ca.pem`;
  expect((await first.run(id, ["sh", "-c", script])).status).toMatchObject({ exitCode: 0 });
  await first.leave();
  const second = await start({ caBundle });
  onTestFinished(async () => second.close());
  expect(await cat(second, id, "/etc/ssl/dsec-ca.pem")).toContain(authority.cert.trim());
  expect(await cat(second, id, bundle)).toContain(authority.cert.trim());
  expect(await sha256(outside)).toBe(before);
});

test("a bundle that cannot be used keeps the daemon from starting, and leaves nothing", async () => {
  const dir = await temporaryDir();
  const caBundle = join(dir, "ca.pem");
  await writeFile(caBundle, "no certificate");
  await expect(TestDaemon.start({ caBundle })).rejects.toMatchObject({
    code: "config_invalid",
    message: `--ca-bundle: ${caBundle} holds no certificate in PEM form`,
  });
});
