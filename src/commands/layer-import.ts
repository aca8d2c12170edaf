import { join } from "node:path";
import { formatsFrom } from "./format.ts";
import { untilInterrupted } from "./interrupt.ts";
import { isTerminal, note } from "./io.ts";
import type { Io } from "./io.ts";
import { builtView } from "./layer-build.ts";
import { layerStoreOption, openStore, storeNote } from "./open-layer-store.ts";
import { choice, flag, text, value } from "./option.ts";
import { listingOf } from "./outcome.ts";
import { ProgressLine } from "./progress.ts";
import { parseSize } from "./size.ts";
import { defineVerb } from "./verb.ts";

type ImportProgress = Parameters<
  NonNullable<
    Parameters<(typeof import("../daemon/layers/images/image-import.ts"))["importImage"]>[2]["onProgress"]
  >
>[0];

export const layerImport = defineVerb({
  description:
    "SOURCE is what docker pull takes (also as docker://REFERENCE), docker-daemon:REFERENCE, an OCI layout or an archive of one\n" +
    "(oci:DIR[:NAME], oci-archive:FILE[:NAME]), what docker save wrote (docker-archive:FILE[:NAME]), or the path of any of\n" +
    "these, with a slash in it. An image of a registry or a Docker daemon keeps its name, and importing it again moves\n" +
    "the name to what it stands for then; --name publishes it under a name of its own that never changes.\n" +
    "Credentials are those of `docker login` and `skopeo login`. An import that was interrupted goes on where it was.\n" +
    storeNote,
  operands: "<source>",
  examples: [
    "dsec layer import python:3.12-slim",
    "dsec layer import registry.example:5000/team/app:1 --authfile ./auth.json",
    "dsec layer import docker-daemon:app:1",
    "dsec layer import ./image.tar --name app:1",
  ],
  options: {
    name: text("--name <name:version>", "publish it under this name, for ever; needed for files"),
    mergeLimit: value(
      "--merge-limit <size>",
      "merge consecutive layers up to this size; 3g unless given, 0 merges none",
      parseSize,
    ),
    tlsVerify: choice(
      "--src-tls-verify <verify>",
      "true|false: whether the registry needs a certificate to be trusted; unless given, all but localhost do",
      ["true", "false"],
    ),
    authFile: text("--authfile <file>", "file of credentials, as docker login writes it"),
    dockerSocket: text("--docker-socket <path>", "socket of the Docker daemon"),
    quiet: flag("-q, --quiet", "no progress on stderr"),
    store: layerStoreOption,
  },
  formats: formatsFrom("name"),
  run: (context, options, [source = ""]) =>
    untilInterrupted(async (signal) => {
      const { name, mergeLimit, tlsVerify, authFile, dockerSocket, quiet } = options;
      const store = await openStore(context, options.store, true);
      const { importImage } = await import("../daemon/layers/images/image-import.ts");
      const progress = new ImportReport(context.io, !quiet);
      const spec = {
        source,
        ...(name !== undefined && { name }),
        ...(mergeLimit !== undefined && { mergeLimit }),
        ...(tlsVerify !== undefined && { tlsVerify: tlsVerify === "true" }),
        ...(authFile !== undefined && { authFile }),
      };
      try {
        const built = await importImage(store, spec, {
          directory: join((await context.settings()).dataDir, "imports"),
          signal,
          onProgress: progress.update,
          ...(dockerSocket !== undefined && { dockerSocket }),
        });
        return { type: "listing", single: true, listing: listingOf(builtView, [built]) };
      } finally {
        progress.end();
      }
    }),
});

/** A line that moves on a terminal; elsewhere one a phase. */
class ImportReport {
  readonly #io: Io;
  readonly #wanted: boolean;
  #phase: ImportProgress["phase"] | undefined;
  #line: ProgressLine | undefined;

  constructor(io: Io, wanted: boolean) {
    this.#io = io;
    this.#wanted = wanted;
  }

  readonly update = (progress: ImportProgress): void => {
    if (!this.#wanted) return;
    if (progress.phase !== this.#phase) {
      this.end();
      this.#phase = progress.phase;
      if (!isTerminal(this.#io.stderr) || progress.phase === "packing") note(this.#io, progress.phase);
      this.#line = new ProgressLine(this.#io, progress.phase !== "packing", `${progress.phase} `);
    }
    this.#line?.update(progress);
  };

  end(): void {
    this.#line?.clear();
    this.#line = undefined;
  }
}
