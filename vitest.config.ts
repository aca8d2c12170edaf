import { defineConfig } from "vitest/config";

/**
 * `real` needs root and real parts (runc, dockerd, mounts, network namespaces) and shares one machine, so its
 * files run one after the other. `unit` is everything else and needs nothing but Node.
 */
const REAL = ["e2e", "conformance", "backends", "daemon", "agent"].map(
  (folder) => `test/${folder}/**/*.test.ts`,
);

export default defineConfig({
  test: {
    testTimeout: 60_000,
    hookTimeout: 120_000,
    // a loaded machine takes its time; what holds is seen at once all the same
    expect: { poll: { timeout: 30_000, interval: 20 } },
    projects: [
      {
        extends: true,
        test: { name: "unit", include: ["test/**/*.test.ts"], exclude: REAL, maxWorkers: 2 },
      },
      {
        extends: true,
        test: {
          name: "real",
          include: REAL,
          maxWorkers: 1,
          fileParallelism: false,
          globalSetup: ["test/setup/dockerd.ts"],
        },
      },
    ],
  },
});
