/**
 * The closed table of errors: one row per code gives its HTTP status, the CLI's exit code and whether a retry can help.
 * Everything else about an error (status codes in handlers, exit codes in commands) is looked up here.
 */

interface ErrorRow {
  /** HTTP status of the problem+json answer. */
  readonly status: number;
  /** Exit code of the CLI: 2 usage, 124 timeout, 126/127 as docker, 125 everything that is ours. */
  readonly exit: number;
  /** Whether the same request may succeed later without a change. */
  readonly retryable: boolean;
}

const table = {
  // what the caller asked for
  invalid_argument: { status: 400, exit: 2, retryable: false },
  body_too_large: { status: 413, exit: 125, retryable: false },
  method_not_allowed: { status: 405, exit: 125, retryable: false },
  unauthenticated: { status: 401, exit: 125, retryable: false },
  forbidden: { status: 403, exit: 125, retryable: false },
  not_found: { status: 404, exit: 125, retryable: false },
  ambiguous_reference: { status: 409, exit: 125, retryable: false },
  name_taken: { status: 409, exit: 125, retryable: false },
  conflict: { status: 409, exit: 125, retryable: false },
  invalid_image_reference: { status: 400, exit: 125, retryable: false },
  image_not_found: { status: 404, exit: 125, retryable: false },
  layer_exists: { status: 409, exit: 125, retryable: false },
  image_invalid: { status: 422, exit: 125, retryable: false },
  unsupported_media_type: { status: 422, exit: 125, retryable: false },
  digest_mismatch: { status: 502, exit: 125, retryable: true },
  registry_denied: { status: 502, exit: 125, retryable: false },
  registry_unreachable: { status: 503, exit: 125, retryable: true },
  layer_store_unavailable: { status: 503, exit: 125, retryable: true },
  layer_corrupt: { status: 500, exit: 125, retryable: false },
  network_policy_unsupported: { status: 422, exit: 125, retryable: false },
  unknown_registry: { status: 422, exit: 125, retryable: false },
  unknown_policy: { status: 409, exit: 125, retryable: true },
  unsupported: { status: 422, exit: 125, retryable: false },
  // execs
  command_not_found: { status: 422, exit: 127, retryable: false },
  command_not_executable: { status: 422, exit: 126, retryable: false },
  no_such_cwd: { status: 422, exit: 125, retryable: false },
  no_such_user: { status: 422, exit: 125, retryable: false },
  exec_timeout: { status: 408, exit: 124, retryable: false },
  sandbox_not_running: { status: 409, exit: 125, retryable: false },
  output_too_large: { status: 413, exit: 125, retryable: false },
  file_error: { status: 422, exit: 125, retryable: false },
  transfer_stalled: { status: 408, exit: 125, retryable: true },
  port_refused: { status: 502, exit: 125, retryable: true },
  port_timeout: { status: 504, exit: 125, retryable: true },
  connection_limit: { status: 429, exit: 125, retryable: true },
  stdin_taken: { status: 409, exit: 125, retryable: true },
  output_lost: { status: 409, exit: 125, retryable: false },
  session_limit: { status: 429, exit: 125, retryable: true },
  // admission and placement
  admission_memory: { status: 503, exit: 125, retryable: true },
  admission_count: { status: 503, exit: 125, retryable: true },
  admission_pressure: { status: 503, exit: 125, retryable: true },
  admission_disk: { status: 503, exit: 125, retryable: true },
  draining: { status: 503, exit: 125, retryable: true },
  no_capacity: { status: 503, exit: 125, retryable: true },
  no_node: { status: 503, exit: 125, retryable: true },
  rate_limited: { status: 429, exit: 125, retryable: true },
  // the platform
  backend_unavailable: { status: 503, exit: 125, retryable: false },
  audit_unavailable: { status: 503, exit: 125, retryable: false },
  start_failed: { status: 500, exit: 125, retryable: true },
  start_timeout: { status: 504, exit: 125, retryable: true },
  agent_lost: { status: 502, exit: 125, retryable: true },
  node_unreachable: { status: 502, exit: 125, retryable: true },
  coordinator_unreachable: { status: 503, exit: 125, retryable: true },
  connection_lost: { status: 502, exit: 125, retryable: true },
  protocol_error: { status: 502, exit: 125, retryable: false },
  cancelled: { status: 499, exit: 125, retryable: true },
  disk_full: { status: 507, exit: 125, retryable: false },
  address_in_use: { status: 500, exit: 125, retryable: false },
  already_running: { status: 409, exit: 125, retryable: false },
  permission_denied: { status: 500, exit: 125, retryable: false },
  journal_corrupt: { status: 500, exit: 125, retryable: false },
  config_invalid: { status: 500, exit: 125, retryable: false },
  internal: { status: 500, exit: 125, retryable: false },
} as const satisfies Record<string, ErrorRow>;

export type ErrorCode = keyof typeof table;

export const errorTable: Readonly<Record<ErrorCode, ErrorRow>> = table;

/** Whether `value` is a code of this table. */
export function isErrorCode(value: unknown): value is ErrorCode {
  return typeof value === "string" && Object.hasOwn(table, value);
}

export interface DSecErrorOptions extends ErrorOptions {
  /** The outcome is unknown: the request may have taken effect. */
  readonly ambiguous?: boolean;
  /** Milliseconds after which a retry makes sense. */
  readonly retryAfterMs?: number;
  /** Machine-readable particulars, e.g. the reason each node refused. */
  readonly details?: Readonly<Record<string, unknown>>;
}

/**
 * The one error class of dsec, on every side of the wire. Callers test `code`. The message is a sentence for people and
 * does not repeat its cause's message.
 */
export class DSecError extends Error {
  override readonly name = "DSecError";
  readonly code: ErrorCode;
  readonly ambiguous: boolean;
  readonly retryAfterMs: number | undefined;
  readonly details: Readonly<Record<string, unknown>> | undefined;

  constructor(code: ErrorCode, message: string, options: DSecErrorOptions = {}) {
    super(message, "cause" in options ? { cause: options.cause } : undefined);
    this.code = code;
    this.ambiguous = options.ambiguous ?? false;
    this.retryAfterMs = options.retryAfterMs;
    this.details = options.details;
  }

  get retryable(): boolean {
    return errorTable[this.code].retryable;
  }

  get exitCode(): number {
    return errorTable[this.code].exit;
  }
}
