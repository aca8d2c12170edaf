import { request } from "node:http";

/** The socket a Docker client would use here. */
export function defaultDockerSocket() {
  const host = process.env["DOCKER_HOST"] ?? "";
  return host.startsWith("unix://") ? host.slice("unix://".length) : "/var/run/docker.sock";
}

/**
 * @param {string} socketPath
 * @returns {Promise<boolean>} whether a Docker-compatible daemon answers there
 */
export async function dockerAnswers(socketPath) {
  return new Promise((resolve) => {
    const ping = request({ socketPath, path: "/_ping", timeout: 3000 }, (response) => {
      response.resume();
      resolve(response.statusCode === 200);
    });
    ping.once("timeout", () => ping.destroy());
    ping.once("error", () => resolve(false));
    ping.end();
  });
}
