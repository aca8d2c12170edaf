/** Where sandboxes write: a directory for each, with a hard limit. */

/** One sandbox's writable data. */
export interface ScratchDirectory {
  readonly path: string;
  /** Whether a large file is better written past the page cache, which costs more to fill than the disk to write. */
  readonly prefersDirectWrites: boolean;
  /** Bytes written, those not yet on disk included. */
  usage(): Promise<number>;
  /** Whether the limit has been reached: a program that went on writing was refused. */
  full(): Promise<boolean>;
  /** Removes it and all it holds. Idempotent. @throws LinuxError */
  destroy(): Promise<void>;
}

export interface Scratch {
  /** Whether limits are enforced. */
  readonly limited: boolean;
  /**
   * Makes an empty directory, in place of what an earlier attempt may have left.
   *
   * @param bytes what it may hold
   * @throws DSecError `disk_full`
   */
  create(id: string, bytes: number): Promise<ScratchDirectory>;
  /** One that an earlier daemon made; undefined when it is gone. */
  find(id: string): Promise<ScratchDirectory | undefined>;
  /** The ids of all. */
  list(): Promise<string[]>;
  disk(): Promise<{ totalBytes: number; availableBytes: number }>;
  /** Lets go of the file system; where no directory is left, nothing of it remains. */
  close(): Promise<void>;
}
