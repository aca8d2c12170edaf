import { access } from "node:fs/promises";
import type Docker from "dockerode";
import type { BackendReport } from "../../../protocol/node.ts";
import { abortable } from "./abortable.ts";
import { connectionCode } from "./docker-error.ts";

type Finding = BackendReport["findings"][number];

/** Docker 20.10: private cgroup namespaces, one-shot statistics. */
const leastApiVersion = 1.41;

export interface ProbeSubject {
  readonly docker: Docker;
  /** The socket as people would name it. */
  readonly address: string;
  readonly agentPath: string;
}

/** Whether sandboxes can run in containers of this Docker daemon. Never throws. */
export async function probeDocker(subject: ProbeSubject, signal: AbortSignal): Promise<BackendReport> {
  const report = { backend: "container", engine: "docker" } as const;
  let info: DaemonInfo;
  try {
    info = await askDaemon(subject.docker, signal);
  } catch (error) {
    return { ...report, works: false, findings: [unreachable(error, subject.address)] };
  }
  const findings = [...(await agentFindings(subject.agentPath)), ...daemonFindings(info)];
  return {
    ...report,
    works: findings.every(({ level }) => level !== "error"),
    version: info.version,
    findings: [...findings, noDiskLimit],
  };
}

interface DaemonInfo {
  readonly version: string;
  readonly apiVersion: string;
  readonly os: string;
  readonly memoryLimit: boolean;
  readonly pidsLimit: boolean;
}

async function askDaemon(docker: Docker, signal: AbortSignal): Promise<DaemonInfo> {
  const version = await abortable(docker.version(), signal);
  const info = (await abortable(docker.info(), signal)) as {
    OSType?: string;
    MemoryLimit?: boolean;
    PidsLimit?: boolean;
  };
  return {
    version: version.Version,
    apiVersion: version.ApiVersion,
    os: info.OSType ?? "unknown",
    memoryLimit: info.MemoryLimit !== false,
    pidsLimit: info.PidsLimit !== false,
  };
}

const noDiskLimit: Finding = {
  level: "info",
  message: "the disk limit is not enforced by the docker engine; the runc engine does",
};

function daemonFindings(info: DaemonInfo): Finding[] {
  const findings: Finding[] = [];
  if (info.os !== "linux") {
    findings.push({ level: "error", message: `this Docker daemon runs ${info.os} containers, not linux` });
  }
  if (Number(info.apiVersion) < leastApiVersion) {
    findings.push({
      level: "error",
      message: `the Docker daemon speaks API ${info.apiVersion}; ${leastApiVersion} (Docker 20.10) is needed`,
      fix: "upgrade Docker to 20.10 or newer",
    });
  }
  if (!info.memoryLimit) findings.push({ level: "warning", message: "memory limits do not work there" });
  if (!info.pidsLimit) findings.push({ level: "warning", message: "process count limits do not work there" });
  return findings;
}

async function agentFindings(agentPath: string): Promise<Finding[]> {
  try {
    await access(agentPath);
    return [];
  } catch {
    return [{ level: "error", message: "the agent has not been built", fix: "npm run setup" }];
  }
}

function unreachable(error: unknown, address: string): Finding {
  switch (connectionCode(error)) {
    case "ENOENT":
      return {
        level: "error",
        message: `there is no Docker socket at ${address}`,
        fix: "apt-get install docker.io",
      };
    case "EACCES":
    case "EPERM":
      return {
        level: "error",
        message: `no permission to use ${address}`,
        fix: 'usermod -aG docker "$USER", then log in again',
      };
    case "ECONNREFUSED":
      return {
        level: "error",
        message: `no Docker daemon answers at ${address}`,
        fix: "systemctl start docker",
      };
    default: {
      const message = error instanceof Error ? error.message : String(error);
      return { level: "error", message: `the Docker daemon at ${address} does not answer: ${message}` };
    }
  }
}
