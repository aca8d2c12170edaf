import { randomBytes } from "node:crypto";
import Docker from "dockerode";
import type { Sandbox } from "../../src/sdk/index.ts";

/** What is the machine's or the node's own; and large, and of no use to the tests. */
const left = ["./proc", "./sys", "./dev", "./etc/ssl/certs", "./usr/local/share/ca-certificates"].concat([
  "./usr/lib/*/perl",
  "./usr/share/perl",
  "./usr/lib/*/gconv",
  "./usr/lib/git-core",
  "./usr/share/doc",
]);

/** Makes an image of the tests' Docker daemon of what a sandbox has; the image ends with `scope`. Returns its reference. */
export async function imageOf(sandbox: Sandbox, scope: AsyncDisposableStack): Promise<string> {
  const docker = new Docker({ socketPath: process.env["DSEC_TEST_DOCKER_SOCKET"] ?? "" });
  const repo = `dsec-test-${randomBytes(4).toString("hex")}`;
  const excluded = left.map((path) => `--exclude=${path}`);
  const tar = await sandbox.spawn(["tar", "-C", "/", "--numeric-owner", ...excluded, "-c", "."]);
  tar.stderr.resume();
  const response = await docker.importImage(tar.stdout, { repo, tag: "latest" });
  await new Promise<void>((resolve, reject) => {
    docker.modem.followProgress(response, (error) => (error ? reject(error) : resolve()));
  });
  scope.defer(() => docker.getImage(`${repo}:latest`).remove({ force: true }));
  return `${repo}:latest`;
}
