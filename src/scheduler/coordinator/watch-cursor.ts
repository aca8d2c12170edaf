/** Per node the cursor up to which its changes were told. */
export type CursorVector = ReadonlyMap<string, string>;

/** `node:cursor,node:cursor…` */
export function formatCursor(vector: CursorVector): string {
  const parts = [...vector].map(([node, cursor]) => `${node}:${encodeURIComponent(cursor)}`);
  return parts.length === 0 ? "-" : parts.join(",");
}

/** Undefined for what is no cursor of a watch: it is then answered by a fresh snapshot. */
export function parseCursor(text: string): Map<string, string> | undefined {
  if (text === "-") return new Map();
  const vector = new Map<string, string>();
  for (const part of text.split(",")) {
    const [, node, cursor] = /^([a-z0-9-]{1,63}):([\w.!~*'()%-]+)$/.exec(part) ?? [];
    if (node === undefined || cursor === undefined) return undefined;
    try {
      vector.set(node, decodeURIComponent(cursor));
    } catch {
      return undefined;
    }
  }
  return vector;
}
