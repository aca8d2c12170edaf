import type { IncomingMessage } from "node:http";
import { DSecError } from "../../protocol/errors.ts";
import { fromProblem, problemContentType } from "../../protocol/problem-codec.ts";
import type { Problem } from "../../protocol/problem.ts";

/** Bytes of a JSON answer; a list page of 10,000 sandboxes has about 15 million. */
const maxJsonBytes = 134_217_728;
/** Bytes of a problem; more is no problem of ours. */
const maxProblemBytes = 4_194_304;
/** Characters of one NDJSON line. */
const maxLineChars = 16_777_216;

/** The JSON value of a 2xx answer; undefined for one without a body. @throws the problem of any other */
export async function readJson(response: IncomingMessage): Promise<unknown> {
  await refuseProblem(response);
  const text = await readText(response, maxJsonBytes);
  return text === "" ? undefined : parse(text);
}

/** Throws the problem that a non-2xx answer carries. */
export async function refuseProblem(response: IncomingMessage): Promise<void> {
  const status = response.statusCode ?? 0;
  if (status >= 200 && status < 300) return;
  const text = await readText(response, maxProblemBytes);
  if (response.headers["content-type"]?.startsWith(problemContentType) === true) {
    const problem = parse(text);
    if (isProblem(problem)) throw fromProblem(problem);
  }
  throw new DSecError("protocol_error", `the server answered ${status} without a problem`, {
    details: { status, body: text.slice(0, 200) },
  });
}

/** The lines of an NDJSON answer. An answer that is cut short ends in an error of the response, never as if complete. */
export async function* readLines(response: IncomingMessage): AsyncGenerator<unknown, void, undefined> {
  let rest = "";
  response.setEncoding("utf8");
  for await (const chunk of response as AsyncIterable<string>) {
    const lines = (rest + chunk).split("\n");
    rest = lines.pop() ?? "";
    if (rest.length > maxLineChars) throw new DSecError("protocol_error", "the server sent an endless line");
    for (const line of lines) if (line !== "") yield parse(line);
  }
  if (rest.trim() !== "") throw new DSecError("protocol_error", "the server's last line is cut off");
}

async function readText(response: IncomingMessage, limit: number): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of response as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > limit) throw new DSecError("protocol_error", `the server's answer exceeds ${limit} bytes`);
    chunks.push(chunk);
  }
  return chunks.length === 1 ? String(chunks[0]) : Buffer.concat(chunks).toString();
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new DSecError("protocol_error", "the server's answer is not valid JSON", { cause });
  }
}

function isProblem(value: unknown): value is Problem {
  return (
    typeof value === "object" &&
    value !== null &&
    "code" in value &&
    typeof value.code === "string" &&
    "title" in value &&
    typeof value.title === "string"
  );
}
