import { limited } from "../../lib/limited";
import { programFrom, type Program } from "./program";

/** longest is the number of characters in a link: messengers and mail programs cut off longer ones. */
export const longest = 30_000;
const largest = 2_000_000; // characters: a short link can decompress to a large program

/**
 * linkTo returns a link that loads a program. The fragment contains the program; browsers don't send it to a server.
 */
export async function linkTo(program: Program, origin: string): Promise<string> {
  return `${origin}/playground#${await pack(program)}`;
}

/** pack compresses a program for an address. */
export async function pack(program: Program): Promise<string> {
  const json = new Blob([JSON.stringify(program)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(json).arrayBuffer());
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** unpack returns the program of an address; undefined if it contains none. */
export async function unpack(text: string): Promise<Program | undefined> {
  try {
    const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(binary, (char) => char.charCodeAt(0));
    const json = await limited(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")), largest);
    return programFrom(JSON.parse(json));
  } catch {
    return undefined;
  }
}
