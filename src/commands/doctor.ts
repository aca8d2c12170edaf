import { DSecError, errorTable } from "../protocol/errors.ts";
import type { ErrorCode } from "../protocol/errors.ts";
import type { BackendReport } from "../protocol/node.ts";
import { describeBackend } from "./columns.ts";
import { listingFormats } from "./format.ts";
import { note } from "./io.ts";
import { listingOf } from "./outcome.ts";
import type { View } from "./outcome.ts";
import { defineVerb } from "./verb.ts";
import type { Context } from "./verb.ts";

type NodeReport = BackendReport & { readonly node: string };
type Finding = BackendReport["findings"][number];

interface FindingRow {
  readonly report: NodeReport;
  readonly finding: Finding | undefined;
}

const tones = { error: "bad", warning: "warning", info: undefined } as const;

const findingView: View<FindingRow> = {
  columns: [
    { title: "NODE", wide: true, value: ({ report }) => report.node },
    { title: "BACKEND", value: ({ report }) => describeBackend(report) },
    {
      title: "WORKS",
      value: ({ report }) => (report.works ? "yes" : "no"),
      tone: ({ report }) => (report.works ? "good" : "bad"),
    },
    { title: "VERSION", value: ({ report }) => report.version ?? "" },
    {
      title: "FINDING",
      value: ({ finding }) => (finding === undefined ? "" : `${finding.level}: ${finding.message}`),
      tone: ({ finding }) => tones[finding?.level ?? "info"],
    },
    { title: "FIX", value: ({ finding }) => finding?.fix ?? "" },
  ],
  name: ({ report }) => describeBackend(report),
};

/** There is no fleet, or none that would answer us. */
const unasked: ReadonlySet<ErrorCode> = new Set(["coordinator_unreachable", "permission_denied"]);
/** Milliseconds for all probes of this machine together. */
const probeMs = 30_000;
/** What a sandbox is made with unless it asks for something else. */
const defaultBackend = "container";

export const doctor = defineVerb({
  description:
    "Asks every node of the fleet; where none runs, probes this machine. Each finding comes with the command that\n" +
    "mends it, where one is known. Exit code 0 when containers work, else 125.",
  options: {},
  formats: listingFormats,
  run: async (context) => {
    const reports = (await askFleet(context)) ?? (await probeHere(context));
    const rows = reports.flatMap((report): FindingRow[] =>
      report.findings.length === 0
        ? [{ report, finding: undefined }]
        : report.findings.map((finding) => ({ report, finding })),
    );
    const usable = reports.some(({ backend, works }) => backend === defaultBackend && works);
    return {
      type: "listing",
      // one item a backend: only tables need a row a finding
      listing: {
        ...listingOf(findingView, rows),
        items: reports,
        names: () => reports.filter(({ works }) => works).map(describeBackend),
      },
      exitCode: usable ? 0 : errorTable.backend_unavailable.exit,
    };
  },
});

async function askFleet({ io, client }: Context): Promise<NodeReport[] | undefined> {
  try {
    const nodes = await (await client()).doctor();
    for (const { name, health, message } of nodes)
      if (health !== "healthy")
        note(io, `node ${name} does not answer${message === undefined ? "" : `: ${message}`}`);
    return nodes.flatMap(({ name, status }) =>
      (status?.backends ?? []).map((report) => ({ node: name, ...report })),
    );
  } catch (error) {
    if (!(error instanceof DSecError) || !unasked.has(error.code)) throw error;
    note(io, `${error.message}: probing this machine`);
    return undefined;
  }
}

async function probeHere({ settings }: Context): Promise<NodeReport[]> {
  const { instance, runDir, dataDir } = await settings();
  const { probeBackends } = await import("../backends/probe-backends.ts");
  const { auditFinding } = await import("../daemon/audit/audit-finding.ts");
  const { missingPrograms } = await import("../daemon/resources/needed-programs.ts");
  const missing = await missingPrograms(dataDir);
  const reports = await probeBackends({ instance, runDir }, AbortSignal.timeout(probeMs));
  return reports.map((found) => {
    // what a daemon would learn of its node beside what the backend itself says
    const report =
      found.engine === "runc"
        ? {
            ...found,
            works: found.works && missing.length === 0,
            findings: [...found.findings, ...missing],
          }
        : found;
    const audit = report.backend === defaultBackend && report.works ? [auditFinding(false)] : [];
    return { node: "here", ...report, findings: [...report.findings, ...audit] };
  });
}
