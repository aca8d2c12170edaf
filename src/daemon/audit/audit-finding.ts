import { DSecError } from "../../protocol/errors.ts";
import type { BackendReport } from "../../protocol/node.ts";
import { findAuditPrograms } from "./audit-programs.ts";

/** What `dsec doctor` tells of the audit. @param isOn whether it is; where not, whether it could be */
export function auditFinding(isOn: boolean): BackendReport["findings"][number] {
  const level = "info";
  if (isOn) return { level, message: "processes of sandboxes are audited" };
  try {
    findAuditPrograms();
    return { level, message: "processes of sandboxes are not audited; dsec up --audit does" };
  } catch (error) {
    if (!(error instanceof DSecError)) throw error;
    const fix = error.details?.["fix"];
    return { level, message: error.message, ...(typeof fix === "string" && { fix }) };
  }
}
