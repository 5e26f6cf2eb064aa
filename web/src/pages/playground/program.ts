import { split } from "./words";

// A program to run: what a person wrote, and what a runner gets of it.

export interface File {
  name: string;
  text: string;
}

/** What a shell's text ends with so that the arguments after it come to its last command. */
const forArguments = ' "$@"';

export interface Program {
  environment: string;
  files: File[];
  /** A command line, as it was typed. */
  command: string;
  /** The arguments as they were typed, to be split as a shell does. */
  args: string;
  stdin: string;
}

/** The command of a program. Arguments are never part of a shell's text. */
export function commandOf({ command, args }: Program): string[] {
  const line = command.trim();
  const values = split(args)?.words ?? [];
  const parsed = split(line);
  if (parsed?.plain) return [...parsed.words, ...values];
  if (values.length === 0) return ["sh", "-c", line];
  return ["sh", "-c", parsed?.places ? line : line + forArguments, "sh", ...values];
}

/** What to show as the command line, where the command is a script; undefined: it is none, or the server can't take it. */
export function shownOf(program: Program): string | undefined {
  if (commandOf(program)[1] !== "-c") return undefined;
  const line = `${program.command.trim()} ${program.args.trim()}`.trim();
  const takes = !/(?![\t\n])\p{Cc}/u.test(line) && new TextEncoder().encode(line).length <= 4096;
  return takes ? line : undefined;
}

/** What keeps a program from being run, in words. */
export function problemOf(program: Program): string | undefined {
  const wrong = program.files.map((_, at) => wrongName(program.files, at)).find(Boolean);
  if (wrong) return wrong;
  if (program.command.trim() === "") return "Give the command that runs the program";
  return wrongArguments(program);
}

/** Why a file can't have its name. The server knows more reasons. */
export function wrongName(files: readonly File[], at: number): string | undefined {
  const name = files[at]?.name.trim();
  if (!name) return "A file needs a name";
  if (files.some((file, other) => other !== at && file.name.trim() === name)) return `Two files have the name ${name}`;
  return undefined;
}

export function wrongArguments({ command, args }: Program): string | undefined {
  const values = split(args)?.words;
  if (!values) return "A quote in the arguments has no end";
  const line = split(command);
  if (values.length === 0 || !line?.closed || line.places) return undefined;
  return 'The command takes no arguments at its end: write "$@" in it, where they belong';
}

/** The place of the main file, the first that the command names; undefined: it names none. */
export function mainOf({ files, command }: Program): number | undefined {
  for (const word of split(command)?.words ?? []) {
    const at = files.findIndex((file) => file.name === word || `./${file.name}` === word);
    if (at >= 0) return at;
  }
  return undefined;
}

/** Renames a file, also where the command names it as `from`. A wrong name doesn't change the command: a right one can follow it. */
export function rename(program: Program, at: number, name: string, from: string): Program {
  const as = (own: string) => program.files.map((file, other) => (other === at ? { ...file, name: own } : file));
  const files = as(name);
  const follows = !wrongName(files, at) && mainOf({ ...program, files: as(from) }) === at;
  return { ...program, files, command: follows ? named(program.command, from, name) : program.command };
}

/** Makes another file the main one: the command names it instead. */
export function withMain(program: Program, at: number): Program {
  const main = mainOf(program);
  if (main === undefined) return program;
  return { ...program, command: named(program.command, program.files[main]!.name, program.files[at]!.name) };
}

/** A command that names another file. Java's also names the class, as the file without its ending. */
function named(command: string, from: string, to: string): string {
  const java = /^(.+)\.java$/;
  const classes = [java.exec(from)?.[1], java.exec(to)?.[1]];
  return command
    .split(/(\s+)/)
    .map((word) => {
      if (word === from) return to;
      if (word === `./${from}`) return `./${to}`;
      return classes[0] !== undefined && classes[1] !== undefined && word === classes[0] ? classes[1] : word;
    })
    .join("");
}

/** A name that no file has yet, like that of another one. */
export function freshName(files: readonly File[], like: string): string {
  const end = /\.[^./]+$/.exec(like)?.[0] ?? "";
  for (let n = files.length + 1; ; n++) {
    const name = `file${n}${end}`;
    if (!files.some((file) => file.name === name)) return name;
  }
}

/** The end of its file's name, by which its language is known. */
export function languageOf(file: string): string {
  const end = file.slice(file.lastIndexOf(".") + 1).toLowerCase();
  return { mjs: "js", cjs: "js", ts: "js", h: "c", cc: "c", cpp: "c", hpp: "c", bash: "sh" }[end] ?? end;
}

export function same(one: Program, other: Program): boolean {
  const facts = ({ environment, files, command, args, stdin }: Program) => JSON.stringify([environment, files.map(({ name, text }) => [name, text]), command, args, stdin]);
  return facts(one) === facts(other);
}

/** What others made, as a program; undefined: it is none. Links of earlier versions had one file. */
export function programFrom(value: unknown): Program | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { environment, files, file, text, command, args, stdin } = value as Record<string, unknown>;
  const found = { environment, files: files ?? [{ name: file, text }], command, args: args ?? "", stdin };
  return isProgram(found) ? found : undefined;
}

function isProgram(value: Record<keyof Program, unknown>): value is Program & Record<keyof Program, unknown> {
  const { environment, files, command, args, stdin } = value;
  if (![environment, command, args, stdin].every((one) => typeof one === "string")) return false;
  return Array.isArray(files) && files.length > 0 && files.every((one: unknown) => isFile(one));
}

function isFile(value: unknown): value is File {
  return typeof value === "object" && value !== null && ["name", "text"].every((key) => typeof (value as Record<string, unknown>)[key] === "string");
}
