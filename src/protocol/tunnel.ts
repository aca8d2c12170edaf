/**
 * A tunnel to a TCP port of a sandbox: an HTTP upgrade to {@link tunnelUpgrade}, then frames both ways:
 *
 *     kind u8 · length u32, little endian · payload
 *
 * `data` carries bytes, `end` (no payload) ends this direction only, `problem` (JSON Problem, server to client) ends the tunnel;
 * `ping` (server to client, no payload) says nothing: it is sent while the service does not read, to find out whether the client still
 * is there. A connection that ends before both `end`s is `connection_lost`, never the end of the stream: a Unix
 * socket, unlike TCP, has no reset that would tell the two apart.
 */
export const tunnelUpgrade = "dsec-tunnel";
export const tunnelFrame = { data: 0, end: 1, problem: 2, ping: 3 } as const;
export const tunnelHeaderBytes = 5;
/** Largest payload of a data frame, bytes. */
export const maxTunnelData = 262_144;
/** Largest payload of a problem frame, bytes. */
export const maxTunnelProblem = 65_536;

/** Header that carries a token for the HTTP route, where `authorization` belongs to the sandbox's service. */
export const portTokenHeader = "x-dsec-token";
/** Query parameter of the same meaning; only tokens of one port may stand in an address. */
export const portTokenParameter = "dsec_token";
