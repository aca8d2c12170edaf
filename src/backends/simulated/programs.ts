/**
 * The commands a simulated sandbox knows: enough for fleet tests and for the part of the conformance suite that needs no
 * real programs. Everything else is `command_not_found`.
 *
 * | command | does |
 * |---|---|
 * | `true`, `false` | exit 0, 1 |
 * | `echo WORD…` | the words, joined by a space, and a newline |
 * | `printf FORMAT WORD…` | `%s`, `\n` and `\0` are understood; the format is used again while words are left |
 * | `cat` | stdin to stdout |
 * | `yes [TEXT]` | lines without end |
 * | `sleep SECONDS` | |
 * | `env`, `pwd`, `hostname`, `id -u`, `id -g` | |
 * | `sh -c SCRIPT` | simple commands separated by `;` or newline, words by spaces, no quoting; `exit N`, `kill -N $$` and a last word `>&2` |
 */
import type { OutputStream } from "../../agent/guest.ts";

/** A simulated process, as its program sees it. Once it is killed, every call rejects. */
export interface ProcessIo {
  readonly env: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly uid: number;
  readonly gid: number;
  readonly hostname: string;
  /** The next bytes of stdin; undefined at its end. */
  read(): Promise<Buffer | undefined>;
  /** Resolves when the caller has consumed the bytes. */
  write(stream: OutputStream, bytes: string | Buffer): Promise<void>;
  sleep(ms: number): Promise<void>;
  /** Lets everything else in the daemon run before going on. */
  turn(): Promise<void>;
  /** Sends the process itself a signal. */
  kill(signal: number): void;
}

/** Runs to its exit code. */
export type Program = (args: readonly string[], io: ProcessIo) => Promise<number> | number;

const NOT_FOUND = 127;
const USAGE = 2;
const CHUNK = 32_768;

const programs: Readonly<Record<string, Program>> = {
  true: () => 0,
  false: () => 1,
  echo: (args, io) => print(io, `${args.join(" ")}\n`),
  printf: (args, io) => print(io, format(args[0] ?? "", args.slice(1))),
  async cat(_args, io) {
    for (let chunk = await io.read(); chunk !== undefined; chunk = await io.read()) {
      await io.write("stdout", chunk);
    }
    return 0;
  },
  async yes(args, io) {
    const line = `${args.length > 0 ? args.join(" ") : "y"}\n`;
    const chunk = Buffer.from(line.repeat(Math.max(1, Math.floor(CHUNK / Buffer.byteLength(line)))));
    for (;;) {
      await io.write("stdout", chunk);
      await io.turn();
    }
  },
  async sleep(args, io) {
    const seconds = Number(args[0]);
    if (!(seconds >= 0)) return complain(io, `sleep: invalid number '${args[0] ?? ""}'`);
    await io.sleep(seconds * 1000);
    return 0;
  },
  env: (_args, io) =>
    print(
      io,
      Object.entries(io.env)
        .map(([name, value]) => `${name}=${value}\n`)
        .join(""),
    ),
  pwd: (_args, io) => print(io, `${io.cwd}\n`),
  hostname: (_args, io) => print(io, `${io.hostname}\n`),
  id(args, io) {
    if (args[0] === "-u") return print(io, `${io.uid}\n`);
    if (args[0] === "-g") return print(io, `${io.gid}\n`);
    return complain(io, "id: only -u and -g are simulated");
  },
  async sh(args, io) {
    if (args[0] !== "-c" || args[1] === undefined) return complain(io, "sh: only -c SCRIPT is simulated");
    return runScript(args[1], io);
  },
};

/** The program that `command` names, by itself or by a path in a directory of programs. */
export function findProgram(command: string): Program | undefined {
  const name = command.replace(/^(?:\/usr)?\/bin\//, "");
  return Object.hasOwn(programs, name) ? programs[name] : undefined;
}

function format(pattern: string, words: readonly string[]): string {
  const pieces = pattern.replaceAll("\\n", "\n").replaceAll("\\0", "\0").split("%s");
  const places = pieces.length - 1;
  const rounds = places === 0 ? 1 : Math.max(1, Math.ceil(words.length / places));
  let used = 0;
  return Array.from({ length: rounds }, () =>
    pieces.map((piece, index) => (index < places ? piece + (words[used++] ?? "") : piece)).join(""),
  ).join("");
}

async function runScript(script: string, io: ProcessIo): Promise<number> {
  let status = 0;
  for (const line of script.split(/[;\n]/)) {
    const words = line.split(" ").filter((word) => word !== "");
    const [command, ...args] = words;
    if (command === undefined) continue;
    if (command === "exit") return Number(args[0] ?? status) & 255;
    if (command === "kill" && args[1] === "$$") {
      io.kill(Number(args[0]?.slice(1)));
      await io.turn();
      continue;
    }
    const program = findProgram(command);
    if (program === undefined) {
      await io.write("stderr", `sh: ${command}: not found\n`);
      status = NOT_FOUND;
    } else if (args.at(-1) === ">&2") {
      status = await program(args.slice(0, -1), toStderr(io));
    } else {
      status = await program(args, io);
    }
  }
  return status;
}

function toStderr(io: ProcessIo): ProcessIo {
  return { ...io, write: (_stream, bytes) => io.write("stderr", bytes) };
}

async function print(io: ProcessIo, text: string): Promise<number> {
  await io.write("stdout", text);
  return 0;
}

async function complain(io: ProcessIo, message: string): Promise<number> {
  await io.write("stderr", `${message}\n`);
  return USAGE;
}
