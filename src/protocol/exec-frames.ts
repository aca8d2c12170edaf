/**
 * First byte of every binary WebSocket frame of an exec. Client to server: `stdin` (an empty payload is the end of
 * input), `resize` (JSON TerminalSize), `control` (JSON ClientControl). Server to client: `stdout`, `stderr`, `control`
 * (JSON ServerControl) and exactly one `status` (JSON ExecStatus), after which the server closes with 1000.
 * A connection that ends without it is `connection_lost`, ambiguous.
 */
export const execChannel = { stdin: 0, stdout: 1, stderr: 2, status: 3, resize: 4, control: 5 } as const;

/** Bytes of stdin a client may send before the first `credit`. */
export const stdinWindow = 262_144;
/** Largest payload of one frame, bytes. */
export const maxExecFrame = 131_072;
