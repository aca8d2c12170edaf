import type { ServerResponse } from "node:http";
import { dirname } from "node:path/posix";
import type { ContentCheck, GuestFileInfo } from "../../agent/guest.ts";
import { fileHeaders, headerJson } from "../../protocol/file-headers.ts";
import type { ArchiveResult, FileWritten } from "../../protocol/file.ts";
import type { WireServer } from "../../wire/server/server.ts";
import { archiveName, archiveResult, fileInfo, guestPath, parseMode } from "../files/file-view.ts";
import type { Files } from "../files/files.ts";

/** Characters of the names that a trailer may tell, and a body. */
const trailerNames = 2048;
const bodyNames = 65_536;

/** Bytes from which on a file may be written past the page cache: below, waiting for the disk is what would be felt. */
const largeBytes = 67_108_864;

/** The routes of files and archives. */
export function serveFiles(server: WireServer, { files }: { readonly files: Files }): void {
  server.handle("statFile", async ({ params, query }) =>
    files.run(params.ref, async (guest) =>
      fileInfo(await guest.stat(guestPath(query), { followSymlink: query.follow })),
    ),
  );
  server.handle("listFiles", async ({ params, query }) =>
    files.run(params.ref, async (guest) => ({ items: (await guest.list(guestPath(query))).map(fileInfo) })),
  );
  server.handle("makeDirectory", async ({ params, body }) =>
    files.run(params.ref, async (guest) =>
      guest.mkdir(guestPath(body), { parents: body.parents, ...parseMode(body.mode) }),
    ),
  );
  server.handle("removeFile", async ({ params, body }) =>
    files.run(params.ref, async (guest) => guest.remove(guestPath(body), { recursive: body.recursive })),
  );
  server.handle("renameFile", async ({ params, body }) =>
    files.run(params.ref, async (guest) =>
      guest.rename(guestPath(body), guestPath({ path: body.to, pathBytes: body.toBytes })),
    ),
  );
  serveContents(server, files);
}

function serveContents(server: WireServer, files: Files): void {
  server.handleStream("readFile", async (call) =>
    files.download(call, async (guest, content, signal) => {
      const { offset = 0, length = Number.POSITIVE_INFINITY } = call.query;
      const range = { offset, ...(call.query.length === undefined ? {} : { length }) };
      const begun = (info: GuestFileInfo): void => {
        const headers = {
          "content-type": "application/octet-stream",
          [fileHeaders.info]: headerJson(fileInfo(info)),
        };
        // files that the kernel makes up have content, but no size
        const size = info.size === 0 ? undefined : Math.max(0, Math.min(length, info.size - offset));
        content.begin(headers, size);
      };
      await guest.read(guestPath(call.query), range, (chunk) => content.write(chunk), { begun, signal });
      content.end();
    }),
  );
  server.handleStream("writeFile", async (call) => {
    const { mode, uid, gid, mtimeMs, size, sha256, parents } = call.query;
    const path = guestPath(call.query);
    const written = await files.upload(call, async (guest, content, given): Promise<FileWritten> => {
      if (parents)
        await guest.mkdir(Buffer.from(dirname(Buffer.from(path).toString("latin1")), "latin1"), {
          parents: true,
        });
      const owner = { ...(uid === undefined ? {} : { uid }), ...(gid === undefined ? {} : { gid }) };
      await guest.write(path, content, {
        ...owner,
        ...parseMode(mode),
        ...(mtimeMs === undefined ? {} : { mtimeMs }),
        ...(size === undefined ? {} : { size }),
        ...hashes(sha256, content.checkAtEnd),
        direct: given.prefersDirectWrites && size !== undefined && size >= largeBytes,
        signal: given.signal,
      });
      return { size: content.size };
    });
    sendJson(call.response, written);
  });
  server.handleStream("readArchive", async (call) =>
    files.download(call, async (guest, content, signal) => {
      const path = guestPath(call.query);
      const name = call.query.name === undefined ? archiveName(path) : Buffer.from(call.query.name);
      const begun = (info: GuestFileInfo): void =>
        content.begin({
          "content-type": "application/x-tar",
          [fileHeaders.info]: headerJson(fileInfo(info)),
          trailer: fileHeaders.archive,
        });
      const options = { name, followSymlink: call.query.follow, begun, signal };
      const result = await guest.archive(path, options, (chunk) => content.write(chunk));
      content.end({ [fileHeaders.archive]: headerJson(archiveResult(result, trailerNames)) });
    }),
  );
  server.handleStream("writeArchive", async (call) => {
    const { owners, uid, gid, sha256 } = call.query;
    const written = await files.upload(call, async (guest, content, { signal }): Promise<ArchiveResult> => {
      const result = await guest.extract(guestPath(call.query), content, {
        owners,
        ...(uid === undefined ? {} : { uid }),
        ...(gid === undefined ? {} : { gid }),
        ...hashes(sha256, content.checkAtEnd),
        signal,
      });
      return archiveResult(result, bodyNames);
    });
    sendJson(call.response, written);
  });
}

function hashes(sha256: string | undefined, checkAtEnd: ContentCheck | undefined) {
  return {
    ...(sha256 === undefined ? {} : { sha256: Buffer.from(sha256, "hex") }),
    ...(checkAtEnd === undefined ? {} : { checkAtEnd }),
  };
}

function sendJson(response: ServerResponse, body: FileWritten | ArchiveResult): void {
  response.writeHead(200, { "content-type": "application/json; charset=utf-8" }).end(JSON.stringify(body));
}
