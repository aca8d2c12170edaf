import { DSecError } from "../protocol/errors.ts";
import type { BackendKind, SandboxFilter, SandboxState } from "../protocol/sandbox.ts";
import type { DSecClient } from "../sdk/index.ts";
import { asDSecError } from "./report-error.ts";
import { choice, flag, many, text } from "./option.ts";
import type { OptionValues } from "./option.ts";

// by name, so that the compiler says when one is missing; the schemas would cost the start of every command
const states: Readonly<Record<SandboxState, true>> = {
  pending: true,
  starting: true,
  running: true,
  paused: true,
  stopping: true,
  stopped: true,
  failed: true,
  lost: true,
};
const backends: Readonly<Record<BackendKind, true>> = {
  container: true,
  fncall: true,
  microvm: true,
  vm: true,
  simulated: true,
};

export const backendOption = choice(
  "--backend <backend>",
  "container|fncall|microvm|vm|simulated",
  Object.keys(backends).filter((name): name is BackendKind => Object.hasOwn(backends, name)),
);

/** Flags that choose sandboxes by what they are. */
export const filterOptions = {
  labels: many(
    "-l, --label <condition>",
    "with this label: key, key=value or key!=value; repeated, all must hold",
    (given) => given,
  ),
  states: {
    ...many("--state <state>", `in this state: ${Object.keys(states).join("|")}; repeated, any`, parseState),
    choices: Object.keys(states),
  },
  owner: text("--owner <name>", "of this owner"),
  backend: backendOption,
};

export type FilterValues = OptionValues<typeof filterOptions>;

/** Flags of verbs that act on several sandboxes. */
export const selectionOptions = {
  ...filterOptions,
  all: flag("-a, --all", "every sandbox there is, or every one that the filters name"),
};

export function filterOf(values: FilterValues): SandboxFilter {
  const { labels, owner, backend } = values;
  return {
    ...(labels.length === 0 ? {} : { label: [...labels] }),
    ...(values.states.length === 0 ? {} : { state: [...values.states] }),
    ...(owner === undefined ? {} : { owner }),
    ...(backend === undefined ? {} : { backend }),
  };
}

/**
 * What a verb acts on: the references given, or what the filters name.
 * @param ended whether filters also find sandboxes that have ended
 * @throws DSecError `invalid_argument` when neither or both are given
 */
export async function selectSandboxes(
  client: DSecClient,
  refs: readonly string[],
  values: OptionValues<typeof selectionOptions>,
  ended: boolean,
): Promise<readonly string[]> {
  const filter = filterOf(values);
  const filtered = Object.keys(filter).length > 0 || values.all;
  if (refs.length > 0 && filtered)
    throw new DSecError("invalid_argument", "give references or filters (-l, --state, --all…), not both");
  if (refs.length > 0) return [...new Set(refs)];
  if (!filtered)
    throw new DSecError("invalid_argument", "give a sandbox id or name, a filter (-l, --state…) or --all");
  const { items } = await client.list({ ...filter, ...(ended ? { all: true } : {}) });
  return items.map(({ id }) => id);
}

/**
 * Does `work` for each reference, for `atOnce` at the same time; one that fails does not stop the others. Results keep the
 * references' order.
 */
export async function forEachSandbox<T>(
  refs: readonly string[],
  work: (ref: string) => Promise<T>,
  atOnce = 16,
): Promise<{ rows: T[]; failures: DSecError[] }> {
  const results: ({ row: T } | { failure: DSecError })[] = [];
  const waiting = refs.entries();
  const worker = async (): Promise<void> => {
    for (const [index, ref] of waiting) {
      try {
        results[index] = { row: await work(ref) };
      } catch (error) {
        results[index] = { failure: asDSecError(error) };
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(atOnce, refs.length) }, worker));
  return {
    rows: results.flatMap((result) => ("row" in result ? [result.row] : [])),
    failures: results.flatMap((result) => ("failure" in result ? [result.failure] : [])),
  };
}

function parseState(given: string): SandboxState {
  if (isState(given)) return given;
  throw new DSecError(
    "invalid_argument",
    `${JSON.stringify(given)} is not one of ${Object.keys(states).join(", ")}`,
  );
}

function isState(given: string): given is SandboxState {
  return Object.hasOwn(states, given);
}
