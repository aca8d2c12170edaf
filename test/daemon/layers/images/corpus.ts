import type { MadeImage, Member } from "./image-fixture.ts";

const directory = (name: string, more: Partial<Member> = {}): Member => ({ name, type: "5", ...more });
const file = (name: string, content: string | Buffer = name, more: Partial<Member> = {}): Member => ({
  name,
  content,
  ...more,
});

/** CAP_NET_RAW, permitted and effective. */
const netRaw = Buffer.from("0100000200200000000000000000000000000000", "hex");
const longName = `long/${"n".repeat(200)}/${"m".repeat(250)}`;

/** Images that are hard to get right, by what is hard about them. */
export const corpus: Readonly<Record<string, MadeImage>> = {
  "whiteouts and opaque directories": {
    layers: [
      [
        directory("etc/"),
        file("etc/gone"),
        file("etc/kept"),
        directory("old/"),
        file("old/a"),
        directory("old/deep/"),
        file("old/deep/b"),
        directory("opaque/", { mode: 0o700 }),
        file("opaque/below"),
        directory("opaque/sub/"),
        file("opaque/sub/below"),
        file("becomes-directory"),
        directory("becomes-file/"),
        file("becomes-file/x"),
        directory("again/"),
        file("again/before"),
      ],
      [
        file("etc/.wh.gone", ""),
        file(".wh.old", ""),
        directory("opaque/", { mode: 0o750, uid: 7 }),
        file("opaque/above"),
        file("opaque/.wh..wh..opq", ""),
        directory("becomes-directory/"),
        file("becomes-directory/x"),
        file("becomes-file"),
        file(".wh.again", ""),
        file(".wh.never-was", ""),
      ],
      [
        directory("again/"),
        file("again/after"),
        directory("old/"),
        file("old/new"),
        file("etc/gone", "back"),
      ],
    ],
  },
  "links of both kinds": {
    layers: [
      [
        directory("usr/"),
        directory("usr/lib/"),
        file("usr/lib/one", "shared", { mode: 0o4755 }),
        { name: "usr/lib/two", type: "1", link: "usr/lib/one" },
        { name: "three", type: "1", link: "/usr/lib/one" },
        { name: "lib", type: "2", link: "usr/lib" },
        { name: "absolute", type: "2", link: "/etc/../nowhere" },
        { name: "dangling", type: "2", link: "../../../../outside" },
        { name: "hard-to-symlink", type: "1", link: "dangling" },
      ],
      [file("usr/lib/two", "own now")],
    ],
  },
  "owners, modes and times": {
    layers: [
      [
        directory("./", { mode: 0o711, uid: 3, gid: 4 }),
        directory("tmp", { mode: 0o1777 }),
        file("setuid", "x", { mode: 0o6755, uid: 100_000, gid: 65_534 }),
        file("big-ids", "x", {
          records: [
            ["uid", "2000000000"],
            ["gid", "2000000001"],
          ],
        }),
        file("none", "", { mode: 0 }),
        file("fraction", "x", { records: [["mtime", "1234567890.987654321"]] }),
        { name: "fifo", type: "6", mode: 0o622 },
        { name: "null", type: "3", device: [1, 3], mode: 0o666 },
        { name: "disk", type: "4", device: [253, 300], mode: 0o660, gid: 6 },
      ],
    ],
  },
  "attributes and capabilities": {
    layers: [
      [
        file("ping", "program", {
          mode: 0o755,
          xattrs: { "security.capability": netRaw, "user.note": "x\ny=z\0" },
        }),
        directory("dir/", { xattrs: { "user.first": "1" } }),
        file("plain", "x", { xattrs: { "user.empty": "" } }),
      ],
      [directory("dir/", { xattrs: { "user.second": "2" } })],
    ],
  },
  "names that are long, odd or no UTF-8": {
    layers: [
      [
        directory("long/"),
        directory(`long/${"n".repeat(200)}/`),
        file(longName),
        file("new\nline and \u00ff\u00fe bytes"),
        file("quote'\"\\ $(x)"),
        { name: `link-to-${"l".repeat(100)}`, type: "2", link: longName },
      ],
    ],
  },
  "big, sparse and empty files": {
    layers: [
      [
        file("megabytes", Buffer.alloc(9_000_001, "0123456789abcdef")),
        file("empty", ""),
        file("zeros", Buffer.alloc(300_000)),
        file("sparse", "1\n1048576\n5\n".padEnd(512, "\0") + "hello", {
          records: [
            ["GNU.sparse.major", "1"],
            ["GNU.sparse.minor", "0"],
            ["GNU.sparse.name", "holes/sparse"],
            ["GNU.sparse.realsize", "2097152"],
          ],
        }),
      ],
    ],
  },
  "layers without anything": { layers: [[], [file("only")], [], [directory("./")]] },
  "directories that no archive describes": {
    layers: [[file("a/b/c/file")], [file("a/b/other"), file("a/new/file")]],
  },
  "members behind symlinks": {
    layers: [
      [
        directory("usr/"),
        directory("usr/lib/"),
        file("usr/lib/one"),
        { name: "lib", type: "2", link: "usr/lib" },
        { name: "root-lib", type: "2", link: "/usr/lib" },
        { name: "out", type: "2", link: "../../.." },
        file("lib/two"),
        file("root-lib/three"),
        file("out/four"),
      ],
      [file("lib/five")],
    ],
  },
  "aufs's own files": {
    layers: [[file(".wh..wh.aufs", "x"), directory(".wh..wh.plnk/"), file("kept")]],
  },
  "compressed with zstd": {
    layers: [[file("one")], [file(".wh.one", ""), file("two")]],
    compression: "zstd",
  },
  "not compressed": { layers: [[file("one")], [file(".wh.one", ""), file("two")]], compression: "none" },
};
