/** Trees to archive. */
import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import {
  chmodSync,
  chownSync,
  linkSync,
  mkdirSync,
  symlinkSync,
  truncateSync,
  utimesSync,
  writeFileSync,
} from "node:fs";

export function plantTree(top: string): void {
  mkdirSync(`${top}/sub/empty`, { recursive: true });
  writeFileSync(`${top}/set-id`, "x");
  chownSync(`${top}/set-id`, 7, 8);
  chmodSync(`${top}/set-id`, 0o6755);
  writeFileSync(`${top}/sub/${"long name ".repeat(20)}`, "long");
  writeFileSync(Buffer.concat([Buffer.from(`${top}/`), Buffer.from([0xff, 0x0a, 0xc3])]), "odd");
  linkSync(`${top}/set-id`, `${top}/sub/second name`);
  symlinkSync("t".repeat(300), `${top}/dangling`);
  symlinkSync("/etc", `${top}/sub/etc`);
  writeFileSync(`${top}/sparse`, "begin");
  truncateSync(`${top}/sparse`, 20_000_000);
  writeFileSync(`${top}/large`, randomBytes(3_000_001));
  utimesSync(`${top}/large`, 1_234_567_890.25, 1_234_567_890.25);
  chmodSync(`${top}/sub/empty`, 0o1777);
  chownSync(`${top}/sub/empty`, 3_000_000, 9);
  utimesSync(`${top}/sub/empty`, 77, 77);
  chmodSync(`${top}/sub`, 0o500);
  utimesSync(`${top}/sub`, 88.5, 88.5);
}

/** Everything that an archive is to keep, but inode numbers, as text. */
export function described(top: string): string {
  const format = "%P|%y|%m|%U|%G|%s|%T@|%l|%n\\n";
  const text = execFileSync("find", [top, "-mindepth", "1", "-printf", format], { encoding: "latin1" });
  return text.split("\n").sort().join("\n");
}
