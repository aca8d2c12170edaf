import { execFile } from "node:child_process";
import { promisify } from "node:util";

const run = promisify(execFile);

/** Docker's own command line against the Docker daemon of the benchmark: what a user would type. */
export class DockerPeer {
  /** Makes the docker command speak to that daemon. */
  readonly env: NodeJS.ProcessEnv;
  readonly #image: string;

  constructor(socket: string, image: string) {
    this.env = { ...process.env, DOCKER_HOST: `unix://${socket}` };
    this.#image = image;
  }

  /** Starts a container that idles; resolves with its id. */
  async run(): Promise<string> {
    return this.#docker("run", "-d", "--network", "none", "--memory", "512m", this.#image, "sleep", "86400");
  }

  async exec(container: string, ...argv: string[]): Promise<string> {
    return this.#docker("exec", container, ...argv);
  }

  /** Removes containers, killing them first, a few at a time. */
  async remove(containers: readonly string[]): Promise<void> {
    for (let at = 0; at < containers.length; at += 20)
      await this.#docker("rm", "-f", ...containers.slice(at, at + 20));
  }

  async #docker(...argv: string[]): Promise<string> {
    const { stdout } = await run("docker", argv, { env: this.env, maxBuffer: 1 << 20 });
    return stdout.trim();
  }
}
