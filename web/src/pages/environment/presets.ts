import { blank, changed, type Draft } from "./draft";
import { cpu, type Machine } from "./machine";

/** Language is a choice of the form. It sets an image and an interpreter. */
export interface Language {
  name: string;
  /** The programs that it needs. */
  programs: readonly string[];
  /** An image that contains them. */
  image: string;
  /** The last path elements of images that are known to contain them. */
  images: readonly string[];
  interpreter?: Draft["interpreter"];
}

export const languages: readonly Language[] = [
  { name: "Python", programs: ["python3"], image: "python:3.13-slim", images: ["python", "pypy"], interpreter: "PYTHON" },
  { name: "C and C++", programs: ["cc", "c++"], image: "gcc:14", images: ["gcc", "clang"] },
  { name: "Java", programs: ["java", "javac"], image: "eclipse-temurin:21", images: ["eclipse-temurin", "openjdk", "amazoncorretto"] },
  { name: "Node", programs: ["node"], image: "node:22-slim", images: ["node"] },
  { name: "Go", programs: ["go"], image: "golang:1.24", images: ["golang"] },
  { name: "Shell", programs: ["sh"], image: "debian:12-slim", images: ["debian", "ubuntu", "alpine", "busybox"] },
];

/** languageNamed returns the language with a name; undefined if there is none. */
export const languageNamed = (name: string): Language | undefined => languages.find((language) => language.name === name);

/** languageOf returns the language of a draft by its interpreter and image; "" if unknown. */
export function languageOf({ image, interpreter }: Draft): string {
  const last = image.split("/").at(-1)!.split(/[:@]/)[0]!;
  return languages.find((language) => (interpreter !== "NONE" && language.interpreter === interpreter) || language.images.includes(last))?.name ?? "";
}

/**
 * withLanguage sets a language: with the host's programs if it is known to have them, else with the language's
 * image.
 */
export function withLanguage(draft: Draft, language: Language, machine: Machine): Draft {
  const here = language.programs.every((program) => machine.hostInterpreters.includes(program));
  const warm = language.interpreter && machine.kind === "local" && draft.isolation === "NAMESPACES" && draft.runtime === "";
  return { ...draft, image: here ? "host" : language.image, interpreter: warm ? language.interpreter! : "NONE" };
}

/** lacking returns the programs of a language that the image host lacks. */
export function lacking(draft: Draft, language: Language | undefined, { hostInterpreters }: Machine): string[] {
  if (draft.image.trim() !== "host" || hostInterpreters.length === 0) return [];
  const wanted = new Set([...(language?.programs ?? []), ...(draft.interpreter === "PYTHON" ? ["python3"] : [])]);
  return [...wanted].filter((program) => !hostInterpreters.includes(program));
}

type Amounts = Pick<Draft, "cpuMHz" | "memoryMiB" | "processes" | "workspaceMiB">;

/** sizes lists the resources that the form offers by name. */
export const sizes: readonly { name: string; amounts: Amounts }[] = [
  { name: "Small", amounts: { cpuMHz: "1000", memoryMiB: "128", processes: "64", workspaceMiB: "32" } },
  { name: "Medium", amounts: { cpuMHz: "2000", memoryMiB: "256", processes: "128", workspaceMiB: "64" } },
  { name: "Large", amounts: { cpuMHz: "4000", memoryMiB: "1024", processes: "256", workspaceMiB: "256" } },
];

/** sizeOf returns the name of a draft's size; "" for a custom one. */
export function sizeOf(draft: Draft): string {
  return sizes.find(({ amounts }) => (Object.keys(amounts) as (keyof Amounts)[]).every((key) => draft[key].trim() === amounts[key]))?.name ?? "";
}

/** sizeInWords describes a size: "2 cores, 256 MiB". */
export const sizeInWords = (amounts: Amounts, machine: Machine): string => `${cpu(amounts.cpuMHz, machine)}, ${amounts.memoryMiB} MiB`;

/** first has the fields that the form's basic choices set. */
const first = new Set<keyof Draft>(["id", "tenant", "image", "interpreter", "cpuMHz", "memoryMiB", "processes", "workspaceMiB"]);

/** isAdvanced reports whether a draft changes more than the name, the language, the image or the size. */
export function isAdvanced(draft: Draft): boolean {
  return sizeOf(draft) === "" || changed(blank, draft).some((key) => !first.has(key));
}
