import { expect, test } from "vitest";
import {
  formatReference,
  parseImageReference,
  parseLayerReference,
  referenceFile,
  referenceOfFile,
} from "../../../src/daemon/layers/reference.ts";

test.each([
  ["debian", { name: "debian", version: "latest" }, "docker.io/library/debian:latest"],
  ["debian:bookworm", { name: "debian", version: "bookworm" }, "docker.io/library/debian:bookworm"],
  [
    "my-tools_2.x:1.0-RC1",
    { name: "my-tools_2.x", version: "1.0-RC1" },
    "docker.io/library/my-tools_2.x:1.0-RC1",
  ],
])("'%s' names a layer, and an image of Docker's registry", (text, layer, image) => {
  const parsed = parseImageReference(text);
  expect(parsed.layer).toEqual(layer);
  expect(formatReference(parsed.image)).toBe(image);
  expect(formatReference(parseLayerReference(text))).toBe(`${layer.name}:${layer.version}`);
});

const digest = `sha256:${"0".repeat(64)}`;

test.each([
  ["team/debian", "docker.io/team/debian:latest"],
  ["localhost/app", "localhost/app:latest"],
  ["registry.example:5000/team/image:1", "registry.example:5000/team/image:1"],
  [`debian@${digest}`, `docker.io/library/debian@${digest}`],
  [`localhost:5000/a/b:1@${digest}`, `localhost:5000/a/b@${digest}`],
])("'%s' names an image that no layer can be", (text, image) => {
  const parsed = parseImageReference(text);
  expect(parsed.layer).toBeUndefined();
  expect(formatReference(parsed.image)).toBe(image);
  expect(referenceOfFile(...referenceFile(parsed.image))).toEqual(parsed.image);
  expect(() => parseLayerReference(text)).toThrow(
    expect.objectContaining({ name: "DSecError", code: "invalid_image_reference" }),
  );
});

test("files that stand for no reference are not taken for one", () => {
  expect(referenceOfFile("Debian", "1")).toBeUndefined();
  expect(referenceOfFile("debian", ".nfs0001")).toBeUndefined();
});

test.each([
  "",
  "Debian",
  "Team/debian",
  "debian:",
  ":latest",
  "a b",
  "../etc/passwd",
  "debian:../x",
  "a//b",
  "-x",
  "x:y:z:w",
  "a".repeat(600),
  `registry.example/${"a".repeat(250)}`,
  "x\n",
  "x\0",
])("%j is refused", (text) => {
  expect(() => parseImageReference(text)).toThrow(
    expect.objectContaining({ name: "DSecError", code: "invalid_image_reference" }),
  );
});
