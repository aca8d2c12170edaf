import { DSecError } from "../protocol/errors.ts";
import type { ServerVersion } from "../protocol/node.ts";
import { listingFormats } from "./format.ts";
import { note } from "./io.ts";
import { listingOf } from "./outcome.ts";
import type { View } from "./outcome.ts";
import { packageVersion } from "./package-version.ts";
import { defineVerb } from "./verb.ts";

interface Versions {
  readonly client: string;
  /** Absent when no fleet answers. */
  readonly server?: ServerVersion;
}

const versionView: View<Versions> = {
  columns: [
    { title: "CLIENT", value: ({ client }) => client },
    { title: "SERVER", value: ({ server }) => server?.version ?? "" },
    { title: "API", value: ({ server }) => server?.api ?? "" },
  ],
  name: ({ client }) => client,
};

export const version = defineVerb({
  options: {},
  formats: listingFormats,
  run: async ({ io, client }) => {
    const versions: Versions = { client: await packageVersion() };
    const server = await client()
      .then((fleet) => fleet.version())
      .catch((error: unknown) => {
        if (!(error instanceof DSecError) || error.code !== "coordinator_unreachable") throw error;
        note(io, "no fleet answers");
        return undefined;
      });
    const row = server === undefined ? versions : { ...versions, server };
    return { type: "listing", single: true, listing: listingOf(versionView, [row]) };
  },
});
