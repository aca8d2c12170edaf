#!/usr/bin/env -S node --
// `--`: Node would look for the file of an --env-file that is ours
// whole, not by name: a name that an older Node lacks would end it before the check below
import module from "node:module";

const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
if (major < 22 || (major === 22 && minor < 19)) {
  process.stderr.write(`dsec needs Node 22.19 or newer, this is ${process.version}\n`);
  process.exit(125);
}

module.enableCompileCache();
const { main } = await import("../src/commands/main.ts");

const readerGone = new AbortController();
for (const stream of [process.stdout, process.stderr]) {
  stream.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") {
      process.stderr.write(`dsec: what there is to say cannot be written: ${error.message}\n`);
      process.exit(125);
    }
    // a reader that has gone away (`dsec ls | head`) is no error
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
