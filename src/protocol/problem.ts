import { z } from "zod";

/** An error on the wire: RFC 9457 problem+json with our code. `chain` holds the causes' messages, outermost first. */
export const Problem = z.object({
  type: z.string(),
  title: z.string(),
  status: z.int(),
  code: z.string(),
  retryable: z.boolean(),
  ambiguous: z.boolean(),
  retryAfterMs: z.number().optional(),
  details: z.record(z.string(), z.unknown()).optional(),
  chain: z.array(z.string()).optional(),
});
export type Problem = z.infer<typeof Problem>;
