/** Serves the files of a directory: a program of its own, so that it can run in a network namespace. Arguments: directory, address, port. */
import { createReadStream, statSync } from "node:fs";
import { createServer } from "node:http";
import { join, normalize } from "node:path/posix";

const [directory = "", host = "", port = ""] = process.argv.slice(2);

const server = createServer((request, response) => {
  const path = join(directory, normalize(`/${request.url ?? ""}`));
  const found = statSync(path, { throwIfNoEntry: false });
  if (found?.isFile() !== true) {
    response.writeHead(404).end();
    return;
  }
  response.writeHead(200, { "content-length": found.size });
  createReadStream(path).pipe(response);
});
process.on("disconnect", () => process.exit());
server.listen(Number(port), host, () => process.send?.("ready"));
