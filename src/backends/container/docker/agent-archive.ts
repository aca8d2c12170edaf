import { readFile } from "node:fs/promises";
import { encodeTarHeader, tarEnd } from "../../../protocol/tar-encode.ts";
import { tarPadding, type TarType } from "../../../protocol/tar-member.ts";

/**
 * A tar archive with nothing but the agent, for a Docker daemon that cannot bind-mount files of this machine. Unpacked at `/`
 * it is {@link agentPathInside}.
 */
export async function agentArchive(agentPath: string): Promise<Buffer> {
  const content = await readFile(agentPath);
  return Buffer.concat([
    header("directory", ".dsec/", 0o755, 0),
    header("file", agentPathInside.slice(1), 0o555, content.length),
    content,
    Buffer.alloc(tarPadding(content.length)),
    tarEnd,
  ]);
}

export const agentPathInside = "/.dsec/agent";

function header(type: TarType, name: string, mode: number, size: number): Buffer {
  return encodeTarHeader({ type, name: Buffer.from(name), mode, uid: 0, gid: 0, mtimeMs: 0, size });
}
