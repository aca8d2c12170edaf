/** Time as the daemon sees it, passed in so that tests can drive it. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  /** Calls `run` once after `ms` milliseconds, however long that is; returns its dispose. */
  after(ms: number, run: () => void): () => void;
}

/** The longest delay Node's timers take; a longer one would fire at once. */
const longestMs = 2_147_483_647;

export const systemClock: Clock = {
  now: () => Date.now(),
  after(ms, run) {
    let timer: NodeJS.Timeout;
    const arm = (left: number): void => {
      timer =
        left > longestMs
          ? setTimeout(() => arm(left - longestMs), longestMs)
          : setTimeout(run, Math.max(0, left));
    };
    arm(ms);
    return () => clearTimeout(timer);
  },
};
