/** Time as the simulation sees it; passed in so that tests and capacity planning can drive it. */
export interface Timers {
  /** Milliseconds since the epoch. */
  now(): number;
  /** Calls `run` once after `ms` milliseconds; returns its dispose. */
  after(ms: number, run: () => void): () => void;
}

/** The longest delay Node's timers take; a longer one would fire at once. */
const LONGEST_MS = 2_147_483_647;

export const systemTimers: Timers = {
  now: () => Date.now(),
  after(ms, run) {
    let timer: NodeJS.Timeout;
    const arm = (left: number): void => {
      timer =
        left > LONGEST_MS ? setTimeout(() => arm(left - LONGEST_MS), LONGEST_MS) : setTimeout(run, left);
    };
    arm(ms);
    return () => clearTimeout(timer);
  },
};
