import { limited } from "../../lib/limited";
import { programFrom, type Program } from "./program";

/** Characters that a link may have: more than this is cut off by what people send links with. */
export const longest = 30_000;
const largest = 2_000_000; // a small address can hold a large program

/** The link that loads a program. It holds all of it in its fragment, which browsers send to no server. */
export async function linkTo(program: Program, origin: string): Promise<string> {
  return `${origin}/playground#${await pack(program)}`;
}

/** A program as a part of an address, compressed. */
export async function pack(program: Program): Promise<string> {
  const json = new Blob([JSON.stringify(program)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(json).arrayBuffer());
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

/** The program of an address; undefined for what is none. */
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
