/**
 * The thread that everything passes which sandboxes may send to the network: what they do there must not keep the daemon from
 * its work, and an error in it must not end the daemon.
 */
import { parentPort, workerData } from "node:worker_threads";
import { linkName } from "../../../backends/linux/network-namespace.ts";
import type { CompiledPolicy } from "../policy/compile.ts";
import { NameTable } from "../policy/name-table.ts";
import { PrefixTable } from "../policy/prefix-table.ts";
import { DecisionBatch } from "./decision-batch.ts";
import { Gate } from "./gate.ts";
import type {
  GateAnswer,
  GateMessage,
  GateRequest,
  GateResult,
  GateSettings,
  PolicyBody,
} from "./gate-messages.ts";

const reportMs = 100;
const settings: GateSettings = workerData;
const batch = new DecisionBatch();
const policies = new Map<number, CompiledPolicy>();

function compiled(body: PolicyBody): CompiledPolicy {
  return { ...body, names: new NameTable(body.domains), prefixes: new PrefixTable(body.cidrs) };
}

function policyOf(number: number): CompiledPolicy {
  const policy = policies.get(number);
  if (policy === undefined) throw new Error(`policy ${number} is not known`);
  return policy;
}

async function carryOut(gate: Gate, request: GateRequest): Promise<GateResult> {
  switch (request.type) {
    case "attach":
      await gate.attach(request.attachment, policyOf(request.policy));
      return {};
    case "set":
      return { cut: await gate.set(request.id, policyOf(request.policy)) };
    case "detach":
      await gate.detach(request.id);
      return {};
    case "reconcile":
      await gate.reconcile();
      return {};
    case "test":
      return { test: await gate.test(policyOf(request.policy), request.probe) };
  }
}

/** With the messages of its causes: an error itself loses its fields on the way. */
function reasonOf(error: unknown): string {
  const messages: string[] = [];
  for (let part: unknown = error; part instanceof Error; part = part.cause) messages.push(part.message);
  return messages.join(": ") || String(error);
}

async function serve(port: NonNullable<typeof parentPort>): Promise<void> {
  // oxlint-disable-next-line unicorn/require-post-message-target-origin -- a thread has no origin
  const tell = (answer: GateAnswer): void => port.postMessage(answer);
  let gate: Gate;
  try {
    gate = await Gate.open({
      ...settings,
      now: () => Date.now(),
      linkName: (number) => linkName(number) ?? "",
      decided: (sandbox, decision) => batch.add(sandbox, decision, Date.now()),
    });
  } catch (error) {
    tell({ type: "ready", failure: reasonOf(error) });
    port.close();
    return;
  }
  const reporting = setInterval(() => {
    const report = batch.take(Date.now());
    if (report !== undefined) tell({ type: "report", report });
  }, reportMs);
  port.on("message", (message: GateMessage) => {
    switch (message.type) {
      case "policy":
        policies.set(message.policy, compiled(message.body));
        return;
      case "forget":
        policies.delete(message.policy);
        return;
      case "close":
        clearInterval(reporting);
        // Of the thread, whatever still waits in it.
        void gate.close().then(() => process.exit());
        return;
      default: {
        const { number } = message;
        carryOut(gate, message).then(
          (result) => tell({ type: "answer", number, result }),
          (error: unknown) => tell({ type: "answer", number, result: {}, failure: reasonOf(error) }),
        );
      }
    }
  });
  tell({ type: "ready", descriptors: gate.descriptors });
}

if (parentPort !== null) await serve(parentPort);
