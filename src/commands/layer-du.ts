import { listingFormats } from "./format.ts";
import { note } from "./io.ts";
import { layerStoreOption, openStore, storeNote } from "./open-layer-store.ts";
import { listingOf } from "./outcome.ts";
import type { View } from "./outcome.ts";
import { formatSize } from "./size.ts";
import { defineVerb } from "./verb.ts";

type DiskUsageModule = typeof import("../daemon/layers/disk-usage.ts");
type LayerDiskUsage = Awaited<ReturnType<DiskUsageModule["storeDiskUsage"]>>["layers"][number];

const usageView: View<LayerDiskUsage> = {
  columns: [
    { title: "LAYER", value: ({ reference }) => reference },
    { title: "SIZE", value: ({ bytes }) => formatSize(bytes) },
    { title: "SHARED", value: ({ bytes, uniqueBytes }) => formatSize(bytes - uniqueBytes) },
    { title: "UNIQUE", value: ({ uniqueBytes }) => formatSize(uniqueBytes) },
    { title: "DIGEST", wide: true, value: ({ digest }) => digest },
  ],
  name: ({ reference }) => reference,
};

export const layerDu = defineVerb({
  description:
    "SHARED are blobs that other layers or images have, too, stored once; UNIQUE is what removing this one would free.\n" +
    storeNote,
  options: { store: layerStoreOption },
  formats: listingFormats,
  run: async (context, options) => {
    const store = await openStore(context, options.store);
    const { storeDiskUsage } = await import("../daemon/layers/disk-usage.ts");
    const usage = await storeDiskUsage(store);
    note(
      context.io,
      `${formatSize(usage.totalBytes)} in the store; of these no name leads to ${formatSize(usage.unreferencedBytes)}` +
        ` (dsec layer prune); ${formatSize(usage.asideBytes)} more are set aside`,
    );
    return { type: "listing", listing: listingOf(usageView, usage.layers) };
  },
});
