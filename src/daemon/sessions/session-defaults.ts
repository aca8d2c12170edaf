export type Env = Readonly<Record<string, string>>;

/** How a sandbox's shells begin. */
export interface SessionDefaults {
  readonly env: Env;
  /** Absolute path inside the sandbox. */
  readonly cwd?: string;
  readonly user?: string;
}
