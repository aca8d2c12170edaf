import { expect, test } from "vitest";
import { hardLimits } from "../../../src/backends/linux/resource-limits.ts";

const text = `Limit                     Soft Limit           Hard Limit           Units
Max core file size        0                    unlimited            bytes
Max processes             96172                96172                processes
Max open files            1024                 524288               files
Max pending signals       7                    8                    signals
`;

test("hard limits are read by their kernel names", () => {
  expect(hardLimits(text)).toEqual({
    RLIMIT_CORE: Infinity,
    RLIMIT_NPROC: 96_172,
    RLIMIT_NOFILE: 524_288,
    RLIMIT_SIGPENDING: 8,
  });
});

test("a limit that is not listed is an error", () => {
  expect(() => hardLimits("")).toThrow("Max core file size");
});
