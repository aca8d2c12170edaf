import { z } from "zod";
import {
  ArchiveReadQuery,
  ArchiveResult,
  ArchiveWriteQuery,
  DirectoryRequest,
  FileInfo,
  FileList,
  FileListQuery,
  FileReadQuery,
  FileRemoval,
  FileRename,
  FileStatQuery,
  FileWriteQuery,
  FileWritten,
} from "../../protocol/file.ts";
import { SandboxRef } from "../../protocol/names.ts";

const params = z.strictObject({ ref: SandboxRef });
const tar = "application/x-tar";
const octets = "application/octet-stream";

/** The routes of files; see contracts.ts. */
export const fileContracts = {
  readFile: {
    summary: "Content of a file, or a part of it; the header x-dsec-file describes it",
    params,
    query: FileReadQuery,
    status: 200,
    answer: "bytes",
    contentType: octets,
  },
  writeFile: {
    summary: "Write a file; answers when size and hash were checked and it is in its place",
    params,
    query: FileWriteQuery,
    upload: octets,
    status: 200,
    answer: "json",
    schema: FileWritten,
  },
  statFile: {
    summary: "Describe a file",
    params,
    query: FileStatQuery,
    status: 200,
    answer: "json",
    schema: FileInfo,
  },
  listFiles: {
    summary: "Entries of a directory",
    params,
    query: FileListQuery,
    status: 200,
    answer: "json",
    schema: FileList,
  },
  makeDirectory: {
    summary: "Make a directory",
    params,
    body: DirectoryRequest,
    status: 204,
    answer: "empty",
  },
  removeFile: {
    summary: "Remove a file or a directory",
    params,
    body: FileRemoval,
    status: 204,
    answer: "empty",
  },
  renameFile: {
    summary: "Rename a file or a directory",
    params,
    body: FileRename,
    status: 204,
    answer: "empty",
  },
  readArchive: {
    summary: "A file or a tree as a tar archive; the trailer x-dsec-archive ends a whole one",
    params,
    query: ArchiveReadQuery,
    status: 200,
    answer: "bytes",
    contentType: tar,
  },
  writeArchive: {
    summary: "Take a tar archive apart in a directory",
    params,
    query: ArchiveWriteQuery,
    upload: tar,
    status: 200,
    answer: "json",
    schema: ArchiveResult,
  },
} as const;
