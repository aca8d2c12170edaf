import { DSecError } from "../../protocol/errors.ts";
import type { Sandbox, SandboxFilter } from "../../protocol/sandbox.ts";
import { endedStates } from "../../protocol/states.ts";

export interface Match {
  /** Whether everything holds. */
  readonly all: (sandbox: Sandbox) => boolean;
  /** Whether everything but the conditions on the state holds. */
  readonly exceptState: (sandbox: Sandbox) => boolean;
}

type Condition = (sandbox: Sandbox) => boolean;

/**
 * All conditions must hold; the values of `state` are alternatives.
 * @throws DSecError `invalid_argument` for a malformed label condition
 */
export function compileFilter(filter: SandboxFilter): Match {
  const { owner, name, prefix, backend } = filter;
  const conditions: Condition[] = (filter.label ?? []).map(labelCondition);
  if (owner !== undefined) conditions.push((sandbox) => sandbox.owner === owner);
  if (name !== undefined) conditions.push((sandbox) => sandbox.name === name);
  if (prefix !== undefined) conditions.push((sandbox) => sandbox.id.startsWith(prefix));
  if (backend !== undefined) conditions.push((sandbox) => sandbox.backend === backend);
  const exceptState = (sandbox: Sandbox): boolean => conditions.every((holds) => holds(sandbox));
  const state = stateCondition(filter);
  return { exceptState, all: (sandbox) => state(sandbox) && exceptState(sandbox) };
}

function stateCondition(filter: SandboxFilter): Condition {
  const states = filter.state ?? [];
  if (states.length > 0) return (sandbox) => states.includes(sandbox.state);
  return filter.all === true ? () => true : (sandbox) => !endedStates.includes(sandbox.state);
}

/** `k`: has the label; `k=v`: has it with this value; `k!=v`: has it not, or with another value. */
function labelCondition(text: string): Condition {
  const [, key, operator, value = ""] = /^([^=!]+?)(?:(!?=)(.*))?$/s.exec(text) ?? [];
  if (key === undefined)
    throw new DSecError("invalid_argument", `label condition ${JSON.stringify(text)} must be k, k=v or k!=v`);
  if (operator === undefined) return (sandbox) => Object.hasOwn(sandbox.labels, key);
  const equals: Condition = (sandbox) => Object.hasOwn(sandbox.labels, key) && sandbox.labels[key] === value;
  return operator === "=" ? equals : (sandbox) => !equals(sandbox);
}
