/** limited reads a text of unknown length. It throws if the text has more than `largest` characters. */
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
      throw new Error("The data is too large to show here");
    }
    if (done) return parts.join("");
  }
}
