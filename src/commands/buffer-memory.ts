/**
 * For processes that pass much content on. Buffers lie outside of V8's heap, and V8 collects all of the heap whenever 64 MB of them were
 * made, however short they live: two thirds of a transfer's time. With this they count as part of the heap, which may grow to four
 * times what was left of it by the last collection before there is another.
 */
export function expectManyBuffers(): void {
  const { setFlagsFromString } = process.getBuiltinModule("node:v8");
  setFlagsFromString("--external-memory-accounted-in-global-limit");
  setFlagsFromString("--heap-growing-percent=300");
}
