import { expect, test } from "vitest";
import { failureMessage, findProgram } from "../../../src/backends/container/runc/runtime.ts";

test("of what a runtime logs, the last message is the failure", () => {
  const text =
    'time="t" level=warning msg="first"\ntime="t" level=error msg="runc run failed: no such \\"thing\\""\n';
  expect(failureMessage(text)).toBe('runc run failed: no such "thing"');
});

test("what is no log is told as it is", () => {
  expect(failureMessage("dsec-agent: event loop: Too many open files\n")).toBe(
    "dsec-agent: event loop: Too many open files",
  );
  expect(failureMessage("")).toBe("");
});

test("a message that was cut off is told as far as it goes", () => {
  expect(failureMessage('level=error msg="cut of')).toBe('level=error msg="cut of');
});

test("a program is looked for in PATH, past what is not there and what cannot be executed", () => {
  expect(findProgram("sh", "/no/such:/etc:/bin")).toBe("/bin/sh");
  expect(findProgram("passwd", "/etc")).toBeUndefined();
  expect(findProgram("sh", "")).toBeUndefined();
});
