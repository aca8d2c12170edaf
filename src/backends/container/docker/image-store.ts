import type Docker from "dockerode";
import type { ImageInspectInfo } from "dockerode";
import { DSecError } from "../../../protocol/errors.ts";
import type { PullPolicy } from "../../../protocol/sandbox.ts";
import type { Running } from "../../backend.ts";
import { startAborted } from "../../start-aborted.ts";
import { abortable } from "./abortable.ts";
import { asDSecError, statusOf } from "./docker-error.ts";
import { isImageReference } from "./image-reference.ts";

/** What the image says of processes that do not say it themselves. */
export type ImageDefaults = NonNullable<Running["imageDefaults"]>;

export interface DockerImage {
  /** Content digest, `sha256:…`. */
  readonly id: string;
  readonly defaults: ImageDefaults;
}

interface Pull {
  readonly done: Promise<void>;
  readonly abort: AbortController;
  waiting: number;
}

/** The Docker daemon's images. However many ask for one that is missing, it is pulled once. */
export class ImageStore {
  readonly #docker: Docker;
  readonly #pulls = new Map<string, Pull>();

  constructor(docker: Docker) {
    this.#docker = docker;
  }

  /** @throws DSecError `invalid_image_reference`, `backend_unavailable`, `cancelled` */
  async find(reference: string, signal: AbortSignal): Promise<DockerImage | undefined> {
    if (!isImageReference(reference)) {
      throw new DSecError(
        "invalid_image_reference",
        `${JSON.stringify(reference)} is not an image reference`,
      );
    }
    try {
      return describe(await abortable(this.#docker.getImage(reference).inspect(), signal));
    } catch (error) {
      if (statusOf(error) === 404) return undefined;
      throw refusal(error, reference, signal);
    }
  }

  /** @throws DSecError as {@link find}, and `image_not_found`, `registry_denied`, `registry_unreachable` when it can neither be found nor be pulled, or is not to be */
  async findOrPull(
    reference: string,
    policy: PullPolicy | undefined,
    signal: AbortSignal,
  ): Promise<DockerImage> {
    const found = await this.find(reference, signal);
    if (found !== undefined && policy !== "always") return found;
    if (policy === "never")
      throw new DSecError("image_not_found", `the Docker daemon has no image ${reference}`, {
        details: { image: reference },
      });
    await this.#pull(reference, signal);
    const pulled = await this.find(reference, signal);
    if (pulled === undefined) throw new DSecError("image_not_found", `the image ${reference} is gone again`);
    return pulled;
  }

  /** Ends when nobody waits for it any more. */
  async #pull(reference: string, signal: AbortSignal): Promise<void> {
    let pull = this.#pulls.get(reference);
    if (pull === undefined) {
      const abort = new AbortController();
      pull = { done: this.#download(reference, abort.signal), abort, waiting: 0 };
      this.#pulls.set(reference, pull);
    }
    pull.waiting += 1;
    try {
      await abortable(pull.done, signal);
    } finally {
      pull.waiting -= 1;
      if (pull.waiting === 0) {
        this.#pulls.delete(reference);
        pull.done.catch(() => undefined);
        pull.abort.abort();
      }
    }
  }

  async #download(reference: string, signal: AbortSignal): Promise<void> {
    try {
      const progress = await this.#docker.pull(withTag(reference), { abortSignal: signal });
      await new Promise<void>((resolve, reject) => {
        this.#docker.modem.followProgress(progress, (error, events: { error?: string }[] | null) => {
          const failure = error ?? events?.find((event) => event.error !== undefined)?.error;
          if (failure) reject(failure instanceof Error ? failure : new Error(failure));
          else resolve();
        });
      });
    } catch (error) {
      const known = refusal(error, reference, signal);
      throw known.code === "start_failed" ? notPulled(reference, error) : known;
    }
  }
}

const saysDenied = /no basic auth|unauthorized|authentication required|denied|forbidden|status:? 40[13]/i;
const saysUnreachable =
  /dial tcp|connection re(?:fused|set)|no such host|timeout|deadline exceeded|x509|tls:|EOF|status:? 5\d\d|server gave HTTP/i;

/** Where the reference names no registry it is as likely a misspelt layer, whatever Docker's own registry says. */
function notPulled(reference: string, cause: unknown): DSecError {
  const [registry = ""] = reference.split("/");
  const isNamed = registry !== reference && (/[.:]/.test(registry) || registry === "localhost");
  const said = cause instanceof Error ? cause.message : "";
  const options = { cause, details: { image: reference } };
  if (isNamed && saysDenied.test(said))
    return new DSecError(
      "registry_denied",
      `the registry does not let the Docker daemon have ${reference}; sandboxes pull without credentials: docker pull it first`,
      options,
    );
  if (isNamed && saysUnreachable.test(said))
    return new DSecError(
      "registry_unreachable",
      `the Docker daemon cannot reach the registry of ${reference}`,
      options,
    );
  return new DSecError(
    "image_not_found",
    `the Docker daemon has no image ${reference} and could not pull it`,
    options,
  );
}

/** Without a tag Docker would pull every tag there is. */
function withTag(reference: string): string {
  const name = reference.slice(reference.lastIndexOf("/") + 1);
  return /[:@]/.test(name) ? reference : `${reference}:latest`;
}

function describe(image: ImageInspectInfo): DockerImage {
  const { Env, WorkingDir, User } = image.Config;
  const pairs = (Env ?? []).map((entry): [string, string] => {
    const at = entry.indexOf("=");
    return at < 0 ? [entry, ""] : [entry.slice(0, at), entry.slice(at + 1)];
  });
  return {
    id: image.Id,
    defaults: {
      env: Object.fromEntries(pairs),
      ...(WorkingDir ? { workdir: WorkingDir } : {}),
      ...(User ? { user: User } : {}),
    },
  };
}

function refusal(error: unknown, reference: string, signal: AbortSignal): DSecError {
  if (signal.aborted) return startAborted(signal);
  return asDSecError(error, "start_failed", `the Docker daemon could not look up the image ${reference}`);
}
