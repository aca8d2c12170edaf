/** A real terminal: tmux, driven by its command line and looked at as a person would. */
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { promisify } from "node:util";
import { dsecProgram, type Fleet } from "./fleet.ts";

const run = promisify(execFile);
const pollMs = 50;
const patienceMs = 30_000;

/** Of tmux's own modes of a pane: what a full-screen program or a shell switches on. */
export interface ScreenModes {
  readonly alternateScreen: boolean;
  readonly cursorHidden: boolean;
}

export interface Ended {
  readonly code: number;
  /** Whether `stty -a` says after the command what it said before it, but for the window's size. */
  readonly settingsKept: boolean;
}

/** Runs one line of shell; `dsec` in it is the built program. The window stays after its end. */
export class Terminal implements AsyncDisposable {
  readonly #socket: string;
  readonly #folder: string;

  private constructor(socket: string, folder: string) {
    this.#socket = socket;
    this.#folder = folder;
  }

  static async open(fleet: Fleet, line: string, size = { rows: 40, cols: 100 }): Promise<Terminal> {
    const folder = await mkdtemp("/tmp/dsec-tmux-");
    const terminal = new Terminal(`dsec-test-${randomBytes(4).toString("hex")}`, folder);
    const script = [
      // ctrl-c is for what runs in the window, not for what comes after it
      "trap : INT",
      // a process of its own, so that its id is that of what is to be signalled
      `dsec() { sh -c 'echo $$ >"${folder}/pid.new"; mv "${folder}/pid.new" "${folder}/pid"; exec "$@"' sh "${process.execPath}" -- "${dsecProgram}" "$@"; }`,
      `settings() { stty -a | sed 's/rows.*columns [0-9]*//'; }`,
      `settings >"${folder}/before"`,
      line,
      "code=$?",
      `settings >"${folder}/after"`,
      `echo $code >"${folder}/code.new"; mv "${folder}/code.new" "${folder}/code"`,
      // until the window is closed
      "exec cat",
    ].join("\n");
    await writeFile(join(folder, "script"), script);
    const { rows, cols } = size;
    await terminal.#tmux(
      ["-f", "/dev/null", "new-session", "-d", "-x", `${cols}`, "-y", `${rows}`, `sh "${folder}/script"`],
      { ...process.env, ...fleet.env, NO_COLOR: "1", TERM: "xterm", LC_ALL: "C.UTF-8" },
    );
    await terminal.#tmux(["set-option", "-g", "status", "off"]);
    await terminal.resize(rows, cols);
    return terminal;
  }

  /** Types text as it is. */
  async type(text: string): Promise<void> {
    await this.#tmux(["send-keys", "-l", "--", text]);
  }

  /** Presses keys by tmux's names: `Enter`, `C-c`, `Escape`. */
  async press(...keys: readonly string[]): Promise<void> {
    await this.#tmux(["send-keys", ...keys]);
  }

  /** As a terminal does: in brackets if the program wants them. Line feeds stay line feeds. */
  async paste(text: string): Promise<void> {
    const file = join(this.#folder, "paste");
    await writeFile(file, text);
    await this.#tmux(["load-buffer", file]);
    await this.#tmux(["paste-buffer", "-p", "-r"]);
  }

  async resize(rows: number, cols: number): Promise<void> {
    await this.#tmux(["resize-window", "-x", `${cols}`, "-y", `${rows}`]);
  }

  /** What is to be seen, with what has been scrolled away, without blank ends of lines. */
  async screen(): Promise<string> {
    return (await this.#tmux(["capture-pane", "-p", "-S", "-1000"])).trimEnd();
  }

  async modes(): Promise<ScreenModes> {
    const told = await this.#tmux(["display-message", "-p", "#{alternate_on} #{cursor_flag}"]);
    const [alternate, cursor] = told.trim().split(" ");
    return { alternateScreen: alternate === "1", cursorHidden: cursor === "0" };
  }

  /** Resolves with the screen when it shows `wanted`. */
  async shows(wanted: string | RegExp): Promise<string> {
    return this.#until(`shows ${String(wanted)}`, async () => {
      const screen = await this.screen();
      const found = typeof wanted === "string" ? screen.includes(wanted) : wanted.test(screen);
      return found ? screen : undefined;
    });
  }

  /** Process id of the newest `dsec`. */
  async pid(): Promise<number> {
    return Number(await this.#until("has started dsec", async () => this.#read("pid")));
  }

  /** Resolves when the line has come to its end. */
  async ended(): Promise<Ended> {
    const code = await this.#until("came to the end of its line", async () => this.#read("code"));
    const settingsKept = (await this.#read("before")) === (await this.#read("after"));
    return { code: Number(code), settingsKept };
  }

  /** Closes the window: whoever is in it is hung up. */
  async close(): Promise<void> {
    await this.#tmux(["kill-server"]).catch(() => undefined);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
    await rm(this.#folder, { recursive: true, force: true });
  }

  async #until<T>(what: string, look: () => Promise<T | undefined>): Promise<T> {
    for (const deadline = Date.now() + patienceMs; ;) {
      const found = await look();
      if (found !== undefined) return found;
      if (Date.now() > deadline) throw new Error(`the terminal never ${what}:\n${await this.screen()}`);
      await delay(pollMs);
    }
  }

  async #read(name: string): Promise<string | undefined> {
    return readFile(join(this.#folder, name), "utf8").catch(() => undefined);
  }

  async #tmux(argv: readonly string[], env: NodeJS.ProcessEnv = process.env): Promise<string> {
    return (await run("tmux", ["-L", this.#socket, ...argv], { env })).stdout;
  }
}
