import { layerBuild } from "./layer-build.ts";
import { layerImport } from "./layer-import.ts";
import { layerDu } from "./layer-du.ts";
import { layerHeat } from "./layer-heat.ts";
import { layerHistory } from "./layer-history.ts";
import { layerInspect } from "./layer-inspect.ts";
import { layerLs } from "./layer-ls.ts";
import { layerPrune } from "./layer-prune.ts";
import { layerRm } from "./layer-rm.ts";
import { layerTag } from "./layer-tag.ts";
import { layerVerify } from "./layer-verify.ts";
import type { VerbGroup } from "./verb.ts";

export const layer: VerbGroup = {
  verbs: {
    build: { summary: "make a layer and publish it", verb: layerBuild },
    import: { summary: "make an image of a registry, archive or Docker daemon a layer", verb: layerImport },
    ls: { summary: "list layers and images", verb: layerLs },
    inspect: { summary: "show what layers and images consist of", verb: layerInspect },
    du: { summary: "show what layers and images take of the store", verb: layerDu },
    history: { summary: "show the layers of an image, or the versions of a layer", verb: layerHistory },
    heat: { summary: "show who uses layers, and how much of them was read", verb: layerHeat },
    tag: { summary: "give a layer or image a further name", verb: layerTag },
    rm: { summary: "remove names of layers and images", verb: layerRm },
    verify: { summary: "compare layers with their digests, byte by byte", verb: layerVerify },
    prune: { summary: "free what no name leads to and nobody uses", verb: layerPrune },
  },
};
