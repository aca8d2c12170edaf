#!/usr/bin/env -S node --
// `--`: Node would look for the file of an --env-file that is ours
import { enableCompileCache } from "node:module";

enableCompileCache();
const { main } = await import("../src/commands/main.ts");

const readerGone = new AbortController();
for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    // a reader that has gone away (`dsec ls | head`) is no error
    if (error.code !== "EPIPE") throw error;
    if (stream === process.stdout) readerGone.abort();
  });
}

const exitCode = await main(process.argv.slice(2), {
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  env: process.env,
  now: Date.now,
  readerGone: readerGone.signal,
});
for (const stream of [process.stdout, process.stderr]) {
  await new Promise((resolve) => stream.write("", resolve));
}
process.exit(exitCode);
