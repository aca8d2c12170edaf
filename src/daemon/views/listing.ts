import { DSecError } from "../../protocol/errors.ts";
import type { Sandbox, SandboxList } from "../../protocol/sandbox.ts";
import type { ListQuery } from "../../wire/server/contracts.ts";
import { compileFilter } from "./filter.ts";
import type { Sandboxes } from "../lifecycle/sandboxes.ts";
import { usagesOf } from "./usage.ts";

/** Newest first. A page ends with a cursor that names its last sandbox, so that what is created or removed meanwhile shifts nothing. */
export async function listSandboxes(sandboxes: Sandboxes, query: ListQuery): Promise<SandboxList> {
  const { limit, cursor, usage, ...filter } = query;
  const match = compileFilter(filter);
  const after = cursor === undefined ? undefined : decodeCursor(cursor);
  const found = [...sandboxes.views()]
    .filter((sandbox) => match.all(sandbox) && (after === undefined || compare(sandbox, after) > 0))
    .sort(compare);
  const page = found.slice(0, limit);
  const last = page.at(-1);
  return {
    items: usage ? await withUsage(sandboxes, page) : page,
    ...(found.length > limit && last !== undefined ? { nextCursor: encodeCursor(last) } : {}),
  };
}

type Position = Pick<Sandbox, "createdAt" | "id">;

function compare(a: Position, b: Position): number {
  return b.createdAt - a.createdAt || (a.id < b.id ? -1 : a.id > b.id ? 1 : 0);
}

async function withUsage(sandboxes: Sandboxes, page: readonly Sandbox[]): Promise<Sandbox[]> {
  const entries = page.flatMap(({ id }) => sandboxes.get(id) ?? []);
  const usages = new Map((await usagesOf(entries)).map((usage, index) => [entries[index]?.id, usage]));
  return page.map((sandbox) => {
    const usage = usages.get(sandbox.id);
    return usage === undefined ? sandbox : { ...sandbox, usage };
  });
}

function encodeCursor({ createdAt, id }: Position): string {
  return Buffer.from(`${createdAt} ${id}`).toString("base64url");
}

function decodeCursor(cursor: string): Position {
  const [time = "", id] = Buffer.from(cursor, "base64url").toString("utf8").split(" ");
  if (id === undefined || !/^\d{1,16}$/.test(time))
    throw new DSecError("invalid_argument", "cursor: is not one that a list gave");
  return { createdAt: Number(time), id };
}
