/** A process in a sandbox's network namespace that tries what it is told, and says how it went. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import type { Attempt, Outcome } from "./visitor-process.ts";

const program = fileURLToPath(new URL("./visitor-process.ts", import.meta.url));

export class Visitor implements AsyncDisposable {
  readonly #child: ChildProcess;
  #next = 1;

  private constructor(child: ChildProcess) {
    this.#child = child;
    child.setMaxListeners(0);
  }

  /** @param namespace path of a network namespace */
  static async enter(namespace: string): Promise<Visitor> {
    const child = spawn("nsenter", [`--net=${namespace}`, process.execPath, program], {
      stdio: ["ignore", "inherit", "inherit", "ipc"],
    });
    await once(child, "message");
    return new Visitor(child);
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }

  async try(attempt: Attempt): Promise<Outcome> {
    const number = this.#next;
    this.#next += 1;
    const { promise, resolve, reject } = Promise.withResolvers<Outcome>();
    const take = (answer: { number: number; outcome: Outcome }) => {
      if (answer.number === number) resolve(answer.outcome);
    };
    const fail = () => reject(new Error("the visitor has ended"));
    this.#child.on("message", take).once("exit", fail);
    this.#child.send({ number, attempt });
    try {
      return await promise;
    } finally {
      this.#child.off("message", take).off("exit", fail);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = once(this.#child, "close");
    this.#child.kill("SIGKILL");
    await closed;
  }
}
