import { expect, test } from "vitest";
import {
  formatReference,
  parseImageReference,
  parseLayerReference,
} from "../../../src/daemon/layers/reference.ts";

test.each([
  ["debian", { name: "debian", version: "latest" }],
  ["debian:bookworm", { name: "debian", version: "bookworm" }],
  ["my-tools_2.x:1.0-RC1", { name: "my-tools_2.x", version: "1.0-RC1" }],
])("'%s' names a layer", (text, expected) => {
  expect(parseImageReference(text)).toEqual(expected);
  expect(formatReference(parseLayerReference(text))).toBe(`${expected.name}:${expected.version}`);
});

test.each(["library/debian", "registry.example:5000/team/image:1", `debian@sha256:${"0".repeat(64)}`])(
  "'%s' is a valid reference that no layer has",
  (text) => {
    expect(parseImageReference(text)).toBeUndefined();
    expect(() => parseLayerReference(text)).toThrow(
      expect.objectContaining({ name: "DSecError", code: "invalid_image_reference" }),
    );
  },
);

test.each([
  "",
  "Debian",
  "debian:",
  ":latest",
  "a b",
  "../etc/passwd",
  "debian:../x",
  "a//b",
  "-x",
  "x:y:z:w",
  "a".repeat(600),
  "x\n",
  "x\0",
])("%j is refused", (text) => {
  expect(() => parseImageReference(text)).toThrow(
    expect.objectContaining({ name: "DSecError", code: "invalid_image_reference" }),
  );
});
