/** Reads a text of which nobody knows how long it is; it fails where it is longer than `largest` characters. */
export async function limited(stream: ReadableStream<Uint8Array>, largest: number): Promise<string> {
  const decoder = new TextDecoder();
  const reader = stream.getReader();
  const parts: string[] = [];
  let length = 0;
  for (;;) {
    const { done, value } = await reader.read();
    const part = done ? decoder.decode() : decoder.decode(value, { stream: true });
    parts.push(part);
    length += part.length;
    if (length > largest) {
      await reader.cancel();
      throw new Error("It is too much to be shown here");
    }
    if (done) return parts.join("");
  }
}
