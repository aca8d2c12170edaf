import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { adoptionSentences } from "./adoption-sentences.ts";
import { compositionSentences } from "./composition-sentences.ts";
import { execSentences } from "./exec-sentences.ts";
import { fileSentences } from "./file-sentences.ts";
import { Fixture } from "./fixture.ts";
import type { ConformanceSubject, Harness } from "./harness.ts";
import { isolationSentences } from "./isolation-sentences.ts";
import { lifecycleSentences } from "./lifecycle-sentences.ts";
import { limitSentences } from "./limit-sentences.ts";
import { portSentences } from "./port-sentences.ts";
import { processSentences } from "./process-sentences.ts";
import { sessionSentences } from "./session-sentences.ts";
import { streamSentences } from "./stream-sentences.ts";

/** What a group of sentences gets: the fixture exists once the tests run. */
export interface Suite {
  readonly subject: ConformanceSubject;
  readonly fixture: () => Fixture;
}

/**
 * What every backend must do, as one list of sentences. Which of them apply is decided by the backend's capabilities, never by
 * its name.
 */
export function conformance(subject: ConformanceSubject): void {
  describe(`on ${subject.name}`, () => {
    let harness: Harness | undefined;
    let fixture: Fixture | undefined;
    const suite: Suite = {
      subject,
      fixture() {
        if (fixture === undefined) throw new Error("the suite has not been set up");
        return fixture;
      },
    };

    beforeAll(async () => {
      harness = await subject.open();
      fixture = new Fixture(harness);
    });
    afterEach(async () => {
      await fixture?.clear();
    });
    afterAll(async () => {
      await harness?.dispose();
    });

    describe("exec", () => {
      execSentences(suite);
    });
    describe("streams", () => {
      streamSentences(suite);
    });
    describe("files and ports", () => {
      fileSentences(suite);
    });
    describe("composition", () => {
      compositionSentences(suite);
    });
    describe("lifecycle", () => {
      lifecycleSentences(suite);
    });
    describe.runIf(subject.capabilities.realProcesses)("processes", () => {
      processSentences(suite);
    });
    describe.runIf(subject.capabilities.realProcesses)("sessions", () => {
      sessionSentences(suite);
    });
    describe.runIf(subject.capabilities.realProcesses)("ports", () => {
      portSentences(suite);
    });
    describe.runIf(subject.capabilities.realProcesses)("limits", () => {
      limitSentences(suite);
    });
    describe.runIf(subject.capabilities.realProcesses)("isolation", () => {
      isolationSentences(suite);
    });
    describe.runIf(subject.capabilities.adopts)("adoption", () => {
      adoptionSentences(suite);
    });

    test("nothing is left behind", async () => {
      await fixture?.clear();
      expect(await harness?.leftovers()).toEqual([]);
    });
  });
}
