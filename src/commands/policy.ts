import { createPolicy, removePolicy, setPolicy } from "./policy-edit.ts";
import { pushPolicy } from "./policy-push.ts";
import { diffPolicies, getPolicy, listPolicies } from "./policy-show.ts";
import { policyLog, testPolicy } from "./policy-watch.ts";
import type { VerbGroup } from "./verb.ts";

export const policy: VerbGroup = {
  verbs: {
    create: { summary: "make a named policy", verb: createPolicy },
    set: { summary: "make a new version of a named policy", verb: setPolicy },
    get: { summary: "show a named policy, or that of a sandbox", verb: getPolicy },
    ls: { summary: "list named policies, or the versions of one", verb: listPolicies },
    diff: { summary: "show what differs between two policies", verb: diffPolicies },
    push: { summary: "replace the policy of sandboxes", verb: pushPolicy },
    test: { summary: "say whether a sandbox may connect somewhere, and by which rule", verb: testPolicy },
    log: { summary: "show what was decided about a sandbox's connections", verb: policyLog },
    rm: { summary: "forget a named policy, or a version of it", verb: removePolicy },
  },
};
