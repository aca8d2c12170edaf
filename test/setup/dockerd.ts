import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import {
  chmod,
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  rm,
  rmdir,
  symlink,
  writeFile,
} from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import Docker from "dockerode";
import { defaultDockerSocket, dockerAnswers } from "../../scripts/setup/docker-socket.mjs";
import { findStaticBusybox } from "../../scripts/setup/find-command.mjs";

const run = promisify(execFile);

/** The image every Docker test may use: a static busybox and nothing else. */
const IMAGE = "dsec-test-busybox:latest";

const START_DEADLINE_MS = 60_000;

/**
 * Gives the tests a Docker socket, named in DSEC_TEST_DOCKER_SOCKET: the machine's own if one answers, otherwise
 * that of a dockerd started here, which keeps everything it has below one temporary directory.
 */
export async function setup(): Promise<() => Promise<void>> {
  await using scope = new AsyncDisposableStack();
  const own = defaultDockerSocket();
  const socket = (await dockerAnswers(own)) ? own : await startDockerd(scope);
  await importBusybox(socket, scope);
  process.env["DSEC_TEST_DOCKER_SOCKET"] = socket;
  const running = scope.move();
  return () => running.disposeAsync();
}

/**
 * Starts a dockerd that ends with `scope`; resolves with its socket.
 *
 * @param options `parent`: where its directory is made; `flags`: more of dockerd's own
 */
export async function startDockerd(
  scope: AsyncDisposableStack,
  { parent = tmpdir(), flags = {} }: { parent?: string; flags?: Readonly<Record<string, string>> } = {},
): Promise<string> {
  const directory = await mkdtemp(join(parent, "dsec-dockerd-"));
  scope.defer(() => rm(directory, { recursive: true, force: true }));
  const socket = join(directory, "docker.sock");
  const cgroup = `/dsec-test-${process.pid}`;
  const log = await open(join(directory, "log"), "w");
  // No bridge and no packet filter rules: the daemon must not change the machine's network.
  const options = {
    host: `unix://${socket}`,
    "data-root": join(directory, "data"),
    "exec-root": join(directory, "exec"),
    pidfile: join(directory, "pid"),
    "cgroup-parent": cgroup,
    bridge: "none",
    iptables: "false",
    ip6tables: "false",
    "ip-forward": "false",
    ...flags,
  };
  // setpriv: dockerd ends with the test run, also when that is killed.
  const dockerd = spawn(
    "setpriv",
    [
      "--pdeathsig",
      "TERM",
      "dockerd",
      ...Object.entries(options).map(([name, value]) => `--${name}=${value}`),
    ],
    { stdio: ["ignore", log.fd, log.fd] },
  );
  const exited = once(dockerd, "exit");
  await Promise.all([once(dockerd, "spawn"), log.close()]);
  scope.defer(async () => {
    dockerd.kill("SIGTERM");
    await exited;
    await removeCgroups(cgroup);
  });

  const deadline = Date.now() + START_DEADLINE_MS;
  while (!(await dockerAnswers(socket))) {
    if (dockerd.exitCode !== null || Date.now() > deadline) {
      throw new Error(
        `dockerd did not start:\n${(await readFile(join(directory, "log"), "utf8")).slice(-2000)}`,
      );
    }
    await sleep(100);
  }
  return socket;
}

/** dockerd leaves its (empty) parent cgroup in every hierarchy. */
async function removeCgroups(name: string): Promise<void> {
  const root = "/sys/fs/cgroup";
  for (const path of [root, ...(await readdir(root)).map((entry) => join(root, entry))]) {
    await rmdir(join(path, name)).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== "ENOENT" && error.code !== "ENOTDIR") throw error;
    });
  }
}

async function importBusybox(socketPath: string, scope: AsyncDisposableStack): Promise<void> {
  const busybox = findStaticBusybox();
  if (busybox === undefined) throw new Error("no static busybox here: npm run setup -- --tests installs it");
  const docker = new Docker({ socketPath });
  const root = await mkdtemp(join(tmpdir(), "dsec-busybox-"));
  try {
    for (const folder of ["bin", "dev", "etc", "proc", "root", "sys", "tmp", "var"])
      await mkdir(join(root, folder));
    await chmod(root, 0o755);
    await chmod(join(root, "tmp"), 0o1777);
    await writeFile(
      join(root, "etc/passwd"),
      "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n",
    );
    await writeFile(join(root, "etc/group"), "root:x:0:\nnogroup:x:65534:\n");
    await run("cp", ["-L", busybox, join(root, "bin/busybox")]);
    const { stdout: applets } = await run(busybox, ["--list"]);
    for (const applet of applets.trim().split("\n")) {
      if (applet !== "busybox") await symlink("busybox", join(root, "bin", applet));
    }
    const tar = spawn("tar", ["-C", root, "--numeric-owner", "-c", "."], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const [repo, tag] = IMAGE.split(":");
    const response = await docker.importImage(tar.stdout, { repo, tag, changes: 'CMD ["/bin/sh"]' });
    await new Promise<void>((resolve, reject) => {
      docker.modem.followProgress(response, (error) => (error ? reject(error) : resolve()));
    });
  } finally {
    await rm(root, { recursive: true });
  }
  scope.defer(async () => {
    await docker.getImage(IMAGE).remove({ force: true });
  });
}
