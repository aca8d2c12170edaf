/**
 * For processes that pass much content on. Buffers lie outside of V8's heap, and V8 collects all of the heap whenever 64 MB of them were
 * made, however short they live: two thirds of a transfer's time. With this they count as part of the heap, whose size then
 * decides. Memory stays bounded by that.
 */
export function expectManyBuffers(): void {
  process.getBuiltinModule("node:v8").setFlagsFromString("--external-memory-accounted-in-global-limit");
}
