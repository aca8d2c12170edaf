import { expect, test } from "vitest";
import { isImageReference } from "../../../src/backends/container/docker/image-reference.ts";

const good = [
  "debian",
  "debian:12-slim",
  "library/debian",
  "registry.example:5000/team/app__x/y-z.1:v1.2_3",
  "localhost/app",
  `debian@sha256:${"a".repeat(64)}`,
  `debian:12@sha256:${"0".repeat(64)}`,
  `sha256:${"f".repeat(64)}`,
  "51534fa5c701",
];
const bad = [
  "",
  "Debian",
  "a//b",
  "a/../b",
  "../containers",
  "/debian",
  "debian/",
  "debian:",
  "debian:-x",
  "debian:a/b",
  "a b",
  "a?b=c",
  "a#b",
  "a%2fb",
  "debian\n",
  "-debian",
  "a..b",
  "debian@sha256:12",
  `debian:${"x".repeat(129)}`,
];

test.each(good)("%s is an image reference", (text) => {
  expect(isImageReference(text)).toBe(true);
});

test.each(bad)("%j is none", (text) => {
  expect(isImageReference(text)).toBe(false);
});

test("a long one that is none is refused in no time", () => {
  expect(isImageReference(`${"a-".repeat(250)}!`)).toBe(false);
});
