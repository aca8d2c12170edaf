import { z } from "zod";

/** A TCP port of a sandbox. */
export const Port = z.int().min(1).max(65_535);

/** Body of `POST /v1/sandboxes/:ref/tokens`: a credential for one port of one sandbox, over the API server's HTTP route. */
export const PortTokenRequest = z.strictObject({
  port: Port,
  /** Seconds it is valid. */
  ttl: z.int().min(1).max(604_800).default(3600),
});
export type PortTokenRequest = z.infer<typeof PortTokenRequest>;

export const PortToken = z.object({
  token: z.string(),
  sandbox: z.string(),
  port: z.int(),
  /** Milliseconds since the epoch. */
  expiresAt: z.number(),
  /** Of the API server, below which the port's own paths begin. */
  path: z.string(),
});
export type PortToken = z.infer<typeof PortToken>;
