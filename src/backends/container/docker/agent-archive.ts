import { readFile } from "node:fs/promises";

const BLOCK = 512;
const USTAR = "ustar\u000000";

/**
 * A tar archive with nothing but the agent, for a Docker daemon that cannot bind-mount files of this machine. Unpacked at `/`
 * it is {@link agentPathInside}.
 */
export async function agentArchive(agentPath: string): Promise<Buffer> {
  const content = await readFile(agentPath);
  const padding = Buffer.alloc((BLOCK - (content.length % BLOCK)) % BLOCK);
  return Buffer.concat([
    header(".dsec/", "5", 0o755, 0),
    header(agentPathInside.slice(1), "0", 0o555, content.length),
    content,
    padding,
    Buffer.alloc(2 * BLOCK),
  ]);
}

export const agentPathInside = "/.dsec/agent";

/** @param type `0` for a file, `5` for a directory */
function header(name: string, type: "0" | "5", mode: number, size: number): Buffer {
  const block = Buffer.alloc(BLOCK);
  block.write(name, 0);
  block.write(octal(mode, 7), 100);
  block.write(octal(0, 7), 108);
  block.write(octal(0, 7), 116);
  block.write(octal(size, 11), 124);
  block.write(octal(0, 11), 136);
  block.write(type, 156);
  block.write(USTAR, 257);
  block.fill(" ", 148, 156);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${octal(sum, 6)}\0`, 148);
  return block;
}

function octal(value: number, digits: number): string {
  return value.toString(8).padStart(digits, "0");
}
