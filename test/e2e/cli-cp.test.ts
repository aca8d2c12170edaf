import { execFileSync } from "node:child_process";
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type CommandResult, type Fleet, startFleet } from "./fleet.ts";
import { sandboxFlags } from "./test-sandbox.ts";

let fleet: Fleet;
let id: string;
let dir: string;
/** A directory inside, of the test. */
let inside: string;
let count = 0;

beforeAll(async () => {
  fleet = await startFleet();
  id = (await fleet.dsec(["run", "-q", ...sandboxFlags])).stdout.trim();
});
afterAll(async () => {
  await fleet[Symbol.asyncDispose]();
});
beforeEach(async () => {
  dir = mkdtempSync(join(tmpdir(), "dsec-cp-"));
  inside = `/work/${count++}`;
  await sh(`mkdir -p ${inside}`);
  return () => rmSync(dir, { recursive: true, force: true });
});

async function sh(script: string): Promise<string> {
  const { stdout, stderr, code } = await fleet.dsec(["exec", id, "--", "sh", "-c", script]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return stdout;
}

async function cp(...argv: string[]): Promise<CommandResult> {
  return fleet.dsec(["cp", "-q", ...argv], { cwd: dir });
}

const found = async (): Promise<string[]> =>
  (await sh(`cd ${inside} && find . -mindepth 1 | sort`)).split("\n").filter((line) => line !== "");

describe("into a sandbox, as docker has it", () => {
  beforeEach(() => {
    mkdirSync(join(dir, "d/sub"), { recursive: true });
    writeFileSync(join(dir, "d/sub/f"), "deep");
    writeFileSync(join(dir, "f"), "file", { mode: 0o640 });
  });

  test.each([
    ["a file to nothing", "f", "new", ["./new"]],
    ["a file into a directory", "f", "", ["./f"]],
    ["a directory to nothing becomes it", "d", "new", ["./new", "./new/sub", "./new/sub/f"]],
    ["a directory into a directory", "d", "", ["./d", "./d/sub", "./d/sub/f"]],
    ["what is in a directory into a directory", "d/.", "", ["./sub", "./sub/f"]],
    ["what is in a directory to nothing", "d/.", "new", ["./new", "./new/sub", "./new/sub/f"]],
    ["this directory", ".", "", ["./d", "./d/sub", "./d/sub/f", "./f"]],
  ])("%s", async (_, source, destination, expected) => {
    expect(await cp(source, `${id}:${inside}/${destination}`)).toMatchObject({
      code: 0,
      stdout: "",
      stderr: "",
    });
    expect(await found()).toEqual(expected);
  });

  test("what is there is joined and replaced; mode and time come along", async () => {
    await sh(`mkdir ${inside}/d; echo old > ${inside}/d/kept; echo old > ${inside}/f`);
    await cp("d", `${id}:${inside}`);
    await cp("f", `${id}:${inside}/f`);
    expect(await found()).toEqual(["./d", "./d/kept", "./d/sub", "./d/sub/f", "./f"]);
    const seconds = Math.floor(statSync(join(dir, "f")).mtimeMs / 1000);
    expect(await sh(`cat ${inside}/f; stat -c ' %a %Y %u' ${inside}/f`)).toBe(`file 640 ${seconds} 0\n`);
  });

  test.each([
    ["a file to nothing/", "f", "new/", "must be there already"],
    ["a directory to a file", "d", "there", "to a file"],
    ["a file to a file/", "f", "there/", "not a directory"],
    ["a file/ as a source", "f/", "new", "directory"],
    ["nothing", "none", "new", "no such file"],
    ["a file below a file", "f", "there/x", "not a directory"],
  ])("%s is refused", async (_, source, destination, message) => {
    await sh(`echo x > ${inside}/there`);
    const result = await cp(source, `${id}:${inside}/${destination}`);
    expect(result).toMatchObject({ code: 125, stdout: "" });
    expect(result.stderr).toContain(message);
    expect(result.stderr).toContain("file_error");
    expect(await found()).toEqual(["./there"]);
  });

  test("symlinks stay what they are, unless -L follows the one that is named", async () => {
    symlinkSync("f", join(dir, "link"));
    symlinkSync("/etc/passwd", join(dir, "d/link"));
    await cp("link", `${id}:${inside}/link`);
    await cp("-L", "link", `${id}:${inside}/followed`);
    await cp("-L", "d", `${id}:${inside}/d`);
    expect(
      await sh(`cd ${inside}; readlink link; readlink d/link; cat followed; [ -L followed ] || echo " file"`),
    ).toBe("f\n/etc/passwd\nfile file\n");
  });

  test("-a keeps owners and set-id bits, and without it there are none", async () => {
    execFileSync("chown", ["12:34", join(dir, "f")]);
    chmodSync(join(dir, "f"), 0o4755);
    execFileSync("chown", ["-R", "56:78", join(dir, "d")]);
    for (const flags of [["-a"], []]) {
      await cp(...flags, "f", `${id}:${inside}/f${flags.length}`);
      await cp(...flags, "d", `${id}:${inside}/d${flags.length}`);
    }
    expect(await sh(`cd ${inside}; stat -c '%n %a %u:%g' f1 d1/sub/f f0 d0/sub/f`)).toBe(
      "f1 4755 12:34\nd1/sub/f 644 56:78\nf0 755 0:0\nd0/sub/f 644 0:0\n",
    );
  });

  test("FIFOs and sockets are left out, and that is said", async () => {
    execFileSync("mkfifo", [join(dir, "d/pipe")]);
    const result = await cp("d", `${id}:${inside}`);
    expect(result).toMatchObject({ code: 0, stderr: "dsec: left out: d/pipe (ENOTSUP)\n" });
    expect(await found()).toEqual(["./d", "./d/sub", "./d/sub/f"]);
  });
});

describe("out of a sandbox, as docker has it", () => {
  beforeEach(async () => {
    await sh(`cd ${inside}; mkdir -p d/sub; echo deep > d/sub/f; echo file > f; chmod 640 f; ln -s f link`);
  });
  const here = (): string[] => readdirSync(dir, { recursive: true, encoding: "utf8" }).sort();

  test.each([
    ["a file to nothing", "f", "new", ["new"]],
    ["a file into a directory", "f", ".", ["f"]],
    ["a directory to nothing becomes it", "d", "new", ["new", "new/sub", "new/sub/f"]],
    ["a directory into a directory", "d", ".", ["d", "d/sub", "d/sub/f"]],
    ["what is in a directory into a directory", "d/.", ".", ["sub", "sub/f"]],
    ["what is in a directory to nothing", "d/.", "new", ["new", "new/sub", "new/sub/f"]],
    ["a symlink", "link", ".", ["link"]],
  ])("%s", async (_, source, destination, expected) => {
    expect(await cp(`${id}:${inside}/${source}`, destination)).toMatchObject({
      code: 0,
      stdout: "",
      stderr: "",
    });
    expect(here()).toEqual(expected);
  });

  test("mode and time come along; what is copied is yours", async () => {
    await sh(`chown 12:34 ${inside}/f; chmod 4750 ${inside}/f; touch -d @1000000000 ${inside}/f`);
    await cp(`${id}:${inside}/f`, "f");
    await cp("-a", `${id}:${inside}/f`, "archived");
    const seen = ["f", "archived"].map((name) => statSync(join(dir, name)));
    expect(seen.map(({ mode, uid, gid, mtimeMs }) => [mode & 0o7777, uid, gid, mtimeMs])).toEqual([
      [0o750, process.getuid?.(), process.getgid?.(), 1e12],
      [0o4750, 12, 34, 1e12],
    ]);
    await cp("-L", `${id}:${inside}/link`, "followed");
    await cp(`${id}:${inside}/link`, "link");
    expect([
      lstatSync(join(dir, "followed")).isFile(),
      lstatSync(join(dir, "link")).isSymbolicLink(),
    ]).toEqual([true, true]);
  });

  test.each([
    ["nothing", "none", ".", "no such file"],
    ["a file/", "f/", ".", "directory"],
    ["a directory to a file", "d", "there", "to a file"],
    ["a file to nothing/", "f", "new/", "must be there already"],
    ["a file to a missing directory", "f", "no/new", "no such file"],
  ])("%s is refused", async (_, source, destination, message) => {
    writeFileSync(join(dir, "there"), "x");
    const result = await cp(`${id}:${inside}/${source}`, destination);
    expect(result).toMatchObject({ code: 125, stdout: "" });
    expect(result.stderr).toContain(message);
    expect(here()).toEqual(["there"]);
  });

  test("a sandbox's symlinks lead nowhere on this machine", async () => {
    mkdirSync(join(dir, "outside"));
    await sh(
      `cd ${inside}; rm -rf d; mkdir d; ln -s ${join(dir, "outside")} d/s; ln -s / d/root; echo x > d/f`,
    );
    await cp(`${id}:${inside}/d`, ".");
    // the names are now directories inside: a copy that went through the symlinks here would write outside
    await sh(`cd ${inside}/d; rm s root; mkdir s; echo evil > s/evil`);
    const result = await cp(`${id}:${inside}/d`, ".");
    expect(result.code).toBe(125);
    // neither through one that stands where the copy goes
    await sh(`cd ${inside}; rm -rf d; ln -s ${join(dir, "outside")} d`);
    rmSync(join(dir, "d"), { recursive: true });
    await cp(`${id}:${inside}/d`, ".");
    await sh(`cd ${inside}; rm d; mkdir d; echo evil > d/evil`);
    expect((await cp(`${id}:${inside}/d`, ".")).code).toBe(125);
    expect(readdirSync(join(dir, "outside"))).toEqual([]);
    // what is named is meant
    expect((await cp(`${id}:${inside}/d/.`, "d")).code).toBe(0);
    expect(readdirSync(join(dir, "outside"))).toEqual(["evil"]);
  });
});

describe("archives on stdin and stdout", () => {
  test("are what tar makes and reads, names and owners as they are", async () => {
    mkdirSync(join(dir, "from/empty"), { recursive: true });
    writeFileSync(join(dir, "from/f"), "content");
    const tar = execFileSync("tar", ["-c", "--owner=12", "--group=34", "-C", dir, "from"]);
    expect(await fleet.dsec(["cp", "-aq", "-", `${id}:${inside}`], { stdin: tar })).toMatchObject({
      code: 0,
    });
    expect(await sh(`stat -c '%n %u:%g' ${inside}/from/f`)).toBe(`${inside}/from/f 12:34\n`);
    const out = await cp(`${id}:${inside}/from`, "-");
    expect(out.code).toBe(0);
    const list = execFileSync("tar", ["-t"], { input: out.stdoutBytes, encoding: "utf8" });
    expect(list.split("\n").sort()).toEqual(["", "from/", "from/empty/", "from/f"]);
    // byte for byte through a pipe of two
    const again = await fleet.dsec(["cp", "-q", "-", `${id}:${inside}/from`], { stdin: out.stdoutBytes });
    expect(again.code).toBe(0);
    expect(await sh(`cat ${inside}/from/from/f`)).toBe("content");
  });

  test("that are none, or cut off, are refused", async () => {
    const tar = execFileSync("tar", ["-c", "-C", "/etc", "passwd", "group"]);
    for (const stdin of ["no archive", tar.subarray(0, 700), ""]) {
      const result = await fleet.dsec(["cp", "-q", "-", `${id}:${inside}`], { stdin });
      expect(result.code).toBe(125);
      expect(result.stderr).toMatch(/: this is no tar archive, or it is damaged or cut off \(file_error\)$/m);
    }
    expect(await found()).toEqual([]);
    expect((await fleet.dsec(["cp", "-", `${id}:${inside}/none`], { stdin: tar })).code).toBe(125);
  });

  test("whose names lead out are refused", async () => {
    const tar = execFileSync("tar", ["-cP", "-C", dir, "--transform", "s,^,../../evil/,", "."], {
      cwd: dir,
    });
    const result = await fleet.dsec(["cp", "-q", "-", `${id}:${inside}`], { stdin: tar });
    expect(result.code).toBe(125);
    expect(await sh("ls / | grep evil || true")).toBe("");
  });

  test("a reader that goes away ends it, quietly", async () => {
    await sh(`dd if=/dev/zero of=${inside}/big bs=1M count=20 2>/dev/null`);
    const child = fleet.spawn(["cp", "-q", `${id}:${inside}/big`, "-"]);
    const stderr: Buffer[] = [];
    child.stderr?.on("data", (chunk: Buffer) => stderr.push(chunk));
    if (child.stdout === null) throw new Error("no stdout");
    await once(child.stdout, "data");
    child.stdout.destroy();
    const [code] = await once(child, "exit");
    expect({ code, stderr: Buffer.concat(stderr).toString() }).toEqual({ code: 141, stderr: "" });
  });
});

describe("usage", () => {
  test.each([
    ["neither side in a sandbox", ["a", "b"], "neither SRC nor DST"],
    ["both sides in sandboxes", ["x:/a", "y:/b"], "both in sandboxes"],
    ["no path", ["x:", "."], "no path"],
    ["one operand", ["x:/a"], "missing required argument"],
  ])("%s is an error of usage", async (_, argv, message) => {
    const result = await cp(...argv);
    expect(result.code).toBe(2);
    expect(result.stderr).toContain(message);
  });

  test("without -q a summary is on stderr", async () => {
    writeFileSync(join(dir, "f"), "x".repeat(2048));
    const result = await fleet.dsec(["cp", "f", `${id}:${inside}`], { cwd: dir });
    expect(result).toMatchObject({ code: 0, stdout: "" });
    expect(result.stderr).toMatch(/^copied 2K in \d+\.\d s.*\n$/);
  });
});

test("64 MB go in and come out byte for byte, and an interrupted copy leaves nothing", async () => {
  const content = randomBytes(64_000_000);
  writeFileSync(join(dir, "big"), content);
  expect((await cp("big", `${id}:/tmp/big`)).code).toBe(0);
  expect((await cp(`${id}:/tmp/big`, "back")).code).toBe(0);
  const hash = (bytes: Buffer): string => createHash("sha256").update(bytes).digest("hex");
  expect(hash(readFileSync(join(dir, "back")))).toBe(hash(content));

  const child = fleet.spawn(["cp", "-q", "-", `${id}:${inside}`]);
  const tar = execFileSync("tar", ["-c", "-C", dir, "big"], { maxBuffer: 1 << 27 });
  child.stdin?.on("error", () => undefined);
  child.stdin?.write(tar.subarray(0, 30_000_000));
  await expect.poll(async () => (await found()).length, { timeout: 20_000 }).toBe(1);
  child.kill("SIGINT");
  const [code] = await once(child, "exit");
  expect(code).toBe(130);
  await expect.poll(found, { timeout: 20_000 }).toEqual([]);
  expect(existsSync(join(dir, ".dsec"))).toBe(false);
});
