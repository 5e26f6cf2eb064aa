import { split } from "./words";

// A program as the user wrote it, and its form for a runner.

/** File is one file of a program. */
export interface File {
  name: string;
  text: string;
}

/** Appended to a shell text so that its last command gets the arguments. */
const forArguments = ' "$@"';

/** Program is a program as it was typed. */
export interface Program {
  environment: string;
  files: File[];
  /** A command line, as it was typed. */
  command: string;
  /** The arguments as they were typed. They are split as a shell does. */
  args: string;
  stdin: string;
}

/** commandOf returns the command as argv. Arguments are never put into a shell's text. */
export function commandOf({ command, args }: Program): string[] {
  const line = command.trim();
  const values = split(args)?.words ?? [];
  const parsed = split(line);
  if (parsed?.plain) return [...parsed.words, ...values];
  if (values.length === 0) return ["sh", "-c", line];
  return ["sh", "-c", parsed?.takesArguments ? line : line + forArguments, "sh", ...values];
}

/**
 * shownOf returns the command line to show for a shell script; undefined for other commands, or if the server
 * rejects it.
 */
export function shownOf(program: Program): string | undefined {
  if (commandOf(program)[1] !== "-c") return undefined;
  const line = `${program.command.trim()} ${program.args.trim()}`.trim();
  const takes = !/(?![\t\n])\p{Cc}/u.test(line) && new TextEncoder().encode(line).length <= 4096;
  return takes ? line : undefined;
}

/** problemOf says why a program can't be run; undefined if it can. */
export function problemOf(program: Program): string | undefined {
  const wrong = program.files.map((_, at) => wrongName(program.files, at)).find(Boolean);
  if (wrong) return wrong;
  if (program.command.trim() === "") return "Enter the command that runs the program";
  return wrongArguments(program);
}

/** wrongName says why a file can't have its name. The server checks more. */
export function wrongName(files: readonly File[], at: number): string | undefined {
  const name = files[at]?.name.trim();
  if (!name) return "A file needs a name";
  if (files.some((file, other) => other !== at && file.name.trim() === name)) return `Two files have the name ${name}`;
  return undefined;
}

/** wrongArguments says why the arguments can't be passed; undefined if they can. */
export function wrongArguments({ command, args }: Program): string | undefined {
  const values = split(args)?.words;
  if (!values) return "A quote in the arguments has no end";
  const line = split(command);
  if (values.length === 0 || !line?.closed || line.takesArguments) return undefined;
  return `Arguments can't be added at the end of this command: write "$@" where they belong`;
}

/** mainOf returns the index of the main file, the first that the command names; undefined if it names none. */
export function mainOf({ files, command }: Program): number | undefined {
  for (const word of split(command)?.words ?? []) {
    const at = files.findIndex((file) => file.name === word || `./${file.name}` === word);
    if (at >= 0) return at;
  }
  return undefined;
}

/**
 * rename renames a file, also in the command, which names it as `from`. An invalid name doesn't change the command.
 */
export function rename(program: Program, at: number, name: string, from: string): Program {
  const as = (own: string) => program.files.map((file, other) => (other === at ? { ...file, name: own } : file));
  const files = as(name);
  const follows = !wrongName(files, at) && mainOf({ ...program, files: as(from) }) === at;
  return { ...program, files, command: follows ? named(program.command, from, name) : program.command };
}

/** withMain makes another file the main one: the command then names it. */
export function withMain(program: Program, at: number): Program {
  const main = mainOf(program);
  if (main === undefined) return program;
  return { ...program, command: named(program.command, program.files[main]!.name, program.files[at]!.name) };
}

/** named replaces a file's name in a command. For Java it also replaces the class, the name without its ending. */
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

/** freshName returns an unused name with the ending of another file. */
export function freshName(files: readonly File[], like: string): string {
  const end = /\.[^./]+$/.exec(like)?.[0] ?? "";
  for (let n = files.length + 1; ; n++) {
    const name = `file${n}${end}`;
    if (!files.some((file) => file.name === name)) return name;
  }
}

/** languageOf returns the editor's language for a file, by its ending. */
export function languageOf(file: string): string {
  const end = file.slice(file.lastIndexOf(".") + 1).toLowerCase();
  return { mjs: "js", cjs: "js", ts: "js", h: "c", cc: "c", cpp: "c", hpp: "c", bash: "sh" }[end] ?? end;
}

/** same reports whether two programs have equal contents. */
export function same(one: Program, other: Program): boolean {
  const facts = ({ environment, files, command, args, stdin }: Program) => JSON.stringify([environment, files.map(({ name, text }) => [name, text]), command, args, stdin]);
  return facts(one) === facts(other);
}

/**
 * programFrom validates an untrusted value; undefined if it is no program. Links of earlier versions have one file.
 */
export function programFrom(value: unknown): Program | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const { environment, files, file, text, command, args, stdin } = value as Record<string, unknown>;
  const found = { environment, files: files ?? [{ name: file, text }], command, args: args ?? "", stdin };
  return isProgram(found) ? found : undefined;
}

/** isProgram checks the types of a program's fields. The server checks their values. */
function isProgram(value: Record<keyof Program, unknown>): value is Program & Record<keyof Program, unknown> {
  const { environment, files, command, args, stdin } = value;
  if (![environment, command, args, stdin].every((one) => typeof one === "string")) return false;
  return Array.isArray(files) && files.length > 0 && files.every((one: unknown) => isFile(one));
}

/** isFile checks the types of a file's fields. */
function isFile(value: unknown): value is File {
  return typeof value === "object" && value !== null && ["name", "text"].every((key) => typeof (value as Record<string, unknown>)[key] === "string");
}
