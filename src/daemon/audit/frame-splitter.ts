/** Bytes of the longest frame; what claims to be longer is none. */
const longest = 4096;
const lengthBytes = 4;

/** Cuts a stream of bytes into frames: 32 bits of length, little-endian, and so many bytes. */
export class FrameSplitter {
  #rest: Buffer = Buffer.alloc(0);

  /** The frames that are complete; they share the chunk's memory. @throws RangeError for what is no such stream */
  *push(chunk: Buffer): Generator<Buffer, void, undefined> {
    const bytes = this.#rest.length === 0 ? chunk : Buffer.concat([this.#rest, chunk]);
    let at = 0;
    while (bytes.length - at >= lengthBytes) {
      const length = bytes.readUInt32LE(at);
      if (length > longest) throw new RangeError(`a frame of ${length} bytes`);
      const end = at + lengthBytes + length;
      if (end > bytes.length) break;
      yield bytes.subarray(at + lengthBytes, end);
      at = end;
    }
    this.#rest = bytes.subarray(at);
  }
}
