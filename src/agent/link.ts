/** What the channels of a connection need of it, and it of them. */
export interface Link {
  send(frame: Buffer): void;
  /** Calls `onBatchEnd` when all frames that arrived together have been handled. */
  afterBatch(channel: Channel): void;
  /** Frames of `channel` are ignored from now on. False when that was so already. */
  forget(channel: number): boolean;
}

export interface Channel {
  onFrame(type: number, payload: Buffer): void;
  onBatchEnd(): void;
  /** The connection is gone. */
  onLost(error: Error): void;
}
