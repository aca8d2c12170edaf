import { z } from "zod";

const absolute = /^\/[^\0]*$/;
const base64 = z.base64().max(8192);

/** A path as text, or, where it is no UTF-8, as bytes. Exactly one of the two. */
const pathFields = {
  path: z.string().max(4095).regex(absolute, "must be an absolute path").optional(),
  pathBytes: base64.optional(),
};

/** Permission bits in octal, as chmod takes them. */
const Mode = z.string().regex(/^[0-7]{1,4}$/, "must be one to four octal digits");
/** The last id means "no change" to the system. */
const OwnerId = z.int().min(0).max(4_294_967_294);
/** The agent counts nanoseconds in 64 bits. */
const latestMs = 9_223_372_036_000;
const Sha256 = z.string().regex(/^[0-9a-f]{64}$/, "must be 64 lower-case hexadecimal digits");

const hasOnePath = ({ path, pathBytes }: { path?: string | undefined; pathBytes?: string | undefined }) =>
  (path === undefined) !== (pathBytes === undefined);
const onePath = { error: "must be given, or pathBytes, but not both", path: ["path"] };

export const FileReadQuery = z
  .strictObject({
    ...pathFields,
    offset: z.int().min(0).optional(),
    /** Bytes. */
    length: z.int().min(0).optional(),
  })
  .refine(hasOnePath, onePath);

/** Content that does not come with its hash here may bring it, or its sum, in a trailer: see file-headers.ts. */
export const FileWriteQuery = z
  .strictObject({
    ...pathFields,
    /** Without it: that of the file which is replaced, else 644. */
    mode: Mode.optional(),
    uid: OwnerId.optional(),
    gid: OwnerId.optional(),
    /** Milliseconds since the epoch. */
    mtimeMs: z.number().min(-latestMs).max(latestMs).optional(),
    /** Make the directories that lead there. */
    parents: z.boolean().default(false),
    /** Bytes the content must have. */
    size: z.int().min(0).optional(),
    sha256: Sha256.optional(),
  })
  .refine(hasOnePath, onePath);

export const FileStatQuery = z
  .strictObject({ ...pathFields, /** A symlink at the end. */ follow: z.boolean().default(true) })
  .refine(hasOnePath, onePath);

export const FileListQuery = z.strictObject(pathFields).refine(hasOnePath, onePath);

export const DirectoryRequest = z
  .strictObject({ ...pathFields, parents: z.boolean().default(false), mode: Mode.optional() })
  .refine(hasOnePath, onePath);

export const FileRemoval = z
  .strictObject({ ...pathFields, recursive: z.boolean().default(false) })
  .refine(hasOnePath, onePath);

export const FileRename = z
  .strictObject({
    ...pathFields,
    to: z.string().max(4095).regex(absolute, "must be an absolute path").optional(),
    toBytes: base64.optional(),
  })
  .refine(hasOnePath, onePath)
  .refine(({ to, toBytes }) => (to === undefined) !== (toBytes === undefined), {
    error: "must be given, or toBytes, but not both",
    path: ["to"],
  });

export const ArchiveReadQuery = z
  .strictObject({
    ...pathFields,
    /** Take what a symlink at the end means instead of the symlink. */
    follow: z.boolean().default(false),
    /** What the file or directory is called in the archive; by default the last part of its path. */
    name: z.string().min(1).max(1024).optional(),
  })
  .refine(hasOnePath, onePath);

export const ArchiveWriteQuery = z
  .strictObject({
    ...pathFields,
    /** The archive says who owns what; otherwise uid and gid do, by default root, and set-id bits are left out. */
    owners: z.boolean().default(false),
    uid: OwnerId.optional(),
    gid: OwnerId.optional(),
    sha256: Sha256.optional(),
  })
  .refine(hasOnePath, onePath);

export const FileType = z.enum(["file", "directory", "symlink", "fifo", "socket", "character", "block"]);

export const FileInfo = z.object({
  /** Base name in a listing, else the path. What is no UTF-8 is replaced; {@link nameBytes} then has it exactly. */
  name: z.string(),
  /** Base64; only where the name is not UTF-8. */
  nameBytes: z.string().optional(),
  type: FileType,
  /** Permission bits as a number, e.g. 420 for 644. */
  mode: z.int(),
  uid: z.int(),
  gid: z.int(),
  /** Bytes. */
  size: z.number(),
  /** Milliseconds since the epoch. */
  mtimeMs: z.number(),
  linkTarget: z.string().optional(),
  linkTargetBytes: z.string().optional(),
});
export type FileInfo = z.infer<typeof FileInfo>;

export const FileList = z.object({ items: z.array(FileInfo) });
export type FileList = z.infer<typeof FileList>;

/** What an upload was: acknowledged when size and hash were checked inside and the file was in its place. */
export const FileWritten = z.object({ size: z.number() });
export type FileWritten = z.infer<typeof FileWritten>;

/** What became of an archive. Devices, FIFOs and sockets are left out, and what vanished or could not be read meanwhile. */
export const ArchiveResult = z.object({
  entries: z.number(),
  /** Of the files in it. */
  bytes: z.number(),
  /** The first of those that were left out; `errno` says why. */
  skipped: z.array(z.object({ name: z.string(), errno: z.string() })),
  skippedCount: z.number(),
});
export type ArchiveResult = z.infer<typeof ArchiveResult>;
