import { z } from "zod";
import { ResourceClass } from "../../../protocol/sandbox.ts";

/** What a later daemon needs to take a sandbox up: journaled, so it changes compatibly only. */
export const DockerRecord = z.object({
  containerId: z.string(),
  class: ResourceClass,
  /** Of the link that the daemon put into it; records of earlier versions have none. */
  address: z.string().exactOptional(),
  /** Kept here, since the image may be removed while the sandbox runs. */
  imageDefaults: z.object({
    env: z.record(z.string(), z.string()),
    workdir: z.string().exactOptional(),
    user: z.string().exactOptional(),
  }),
});
export type DockerRecord = z.infer<typeof DockerRecord>;
