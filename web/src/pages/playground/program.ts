import { limited } from "../../lib/limited";

// A program to run: what a link holds, and what becomes of it.

export interface Program {
  environment: string;
  file: string;
  text: string;
  command: string;
  stdin: string;
}

interface Template {
  file: string;
  command: string;
  text: string;
}

const templates: Record<string, Template> = {
  python: {
    file: "main.py",
    command: "python3 main.py",
    text: `import sys

name = sys.stdin.readline().strip() or "world"
print(f"Hello, {name}!")
`,
  },
  node: {
    file: "main.js",
    command: "node main.js",
    text: `process.stdin.setEncoding("utf8");
let input = "";
process.stdin.on("data", (text) => (input += text));
process.stdin.on("end", () => console.log(\`Hello, \${input.trim() || "world"}!\`));
`,
  },
  c: {
    file: "main.c",
    command: "cc -Wall -o main main.c && ./main",
    text: `#include <stdio.h>

int main(void) {
    char name[100];
    if (scanf("%99s", name) != 1) return puts("Hello, world!") < 0;
    printf("Hello, %s!\\n", name);
}
`,
  },
  ruby: { file: "main.rb", command: "ruby main.rb", text: `name = ($stdin.gets || "").strip\nputs "Hello, #{name.empty? ? "world" : name}!"\n` },
  shell: {
    file: "main.sh",
    command: "sh main.sh",
    text: `read -r name
echo "Hello, \${name:-world}!"
`,
  },
};

/** What a program in an environment begins as, by the environment's name. */
export function templateOf(environment: string): Template {
  const name = Object.keys(templates).find((key) => environment === key || (key.length > 1 && environment.toLowerCase().includes(key)));
  return templates[name ?? "shell"]!;
}

export function begin(environment: string): Program {
  return { environment, ...templateOf(environment), stdin: "" };
}

/** The end of its file's name, by which its language is known. */
export function languageOf(file: string): string {
  const end = file.slice(file.lastIndexOf(".") + 1).toLowerCase();
  return { mjs: "js", ts: "js", h: "c", cc: "c", cpp: "c", bash: "sh" }[end] ?? end;
}

/** A program as a part of an address, compressed: it reproduces it without a server that keeps it. */
export async function pack(program: Program): Promise<string> {
  const json = new Blob([JSON.stringify(program)]).stream().pipeThrough(new CompressionStream("deflate-raw"));
  const bytes = new Uint8Array(await new Response(json).arrayBuffer());
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "");
}

const largest = 2_000_000; // a small address can hold a large program

/** The program of an address; undefined for what is none. */
export async function unpack(text: string): Promise<Program | undefined> {
  try {
    const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
    const bytes = Uint8Array.from(binary, (char) => char.charCodeAt(0));
    const json = await limited(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw")), largest);
    const value: unknown = JSON.parse(json);
    return isProgram(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isProgram(value: unknown): value is Program {
  return typeof value === "object" && value !== null && ["environment", "file", "text", "command", "stdin"].every((key) => typeof (value as Record<string, unknown>)[key] === "string");
}
