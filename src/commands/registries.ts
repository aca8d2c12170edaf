import type { RegistryView } from "../protocol/node.ts";
import { listingFormats } from "./format.ts";
import { listingOf } from "./outcome.ts";
import type { View } from "./outcome.ts";
import { defineVerb } from "./verb.ts";

type NodeRegistry = RegistryView & { readonly node: string };

const registryView: View<NodeRegistry> = {
  columns: [
    { title: "NODE", wide: true, value: ({ node }) => node },
    { title: "NAME", value: ({ name }) => name },
    { title: "STANDS FOR", value: ({ domains, cidrs }) => [...domains, ...cidrs].join(", ") || "nothing" },
    {
      title: "PORTS",
      value: ({ ports }) => ports.join(", "),
    },
    { title: "SOURCE", value: ({ source }) => source },
    {
      title: "CUT-OFF",
      value: ({ cutoff }) => (cutoff === undefined ? "" : new Date(cutoff).toISOString().replace(".000", "")),
    },
    { title: "UPSTREAM", wide: true, value: ({ upstream }) => upstream ?? "" },
  ],
  name: ({ name }) => name,
};

export const registries = defineVerb({
  description:
    "SOURCE says who decides: dsec itself (built-in), the node's npm, pip or apt where one is configured with a mirror (node),\n" +
    "or the operator's file (--registries of `dsec up` and `dsec daemon`). A registry with a cut-off is a mirror on the node.",
  options: {},
  formats: listingFormats,
  run: async ({ client }) => {
    const nodes = await (await client()).nodes();
    const rows = nodes.flatMap(({ name: node, status }) =>
      (status?.registries ?? []).map((registry) => ({ node, ...registry })),
    );
    return { type: "listing", listing: listingOf(registryView, rows) };
  },
});
