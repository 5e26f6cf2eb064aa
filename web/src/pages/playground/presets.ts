import type { Program } from "./program";

// The samples of the playground, by language.

/** Preset is a sample program in one language. */
export interface Preset {
  name: string;
  file: string;
  command: string;
  text: string;
  /** Words in an environment's id or image that suggest that it has the language. */
  words: readonly string[];
}

export const presets: readonly Preset[] = [
  {
    name: "Python",
    file: "main.py",
    command: "python3 main.py",
    words: ["python", "py", "pypy", "conda", "miniconda", "anaconda", "jupyter", "numpy", "scipy"],
    text: `import sys

name = sys.stdin.readline().strip() or "world"
print(f"Hello, {name}!")
`,
  },
  {
    name: "JavaScript",
    file: "main.js",
    command: "node main.js",
    words: ["node", "nodejs", "javascript", "js"],
    text: `process.stdin.setEncoding("utf8");
let input = "";
process.stdin.on("data", (text) => (input += text));
process.stdin.on("end", () => console.log(\`Hello, \${input.trim() || "world"}!\`));
`,
  },
  {
    name: "C",
    file: "main.c",
    command: "cc -Wall -o main *.c && ./main",
    words: ["c", "gcc", "clang", "cc"],
    text: `#include <stdio.h>

int main(void) {
    char name[100];
    if (scanf("%99s", name) != 1) return puts("Hello, world!") < 0;
    printf("Hello, %s!\\n", name);
}
`,
  },
  {
    name: "C++",
    file: "main.cpp",
    command: "c++ -Wall -o main *.cpp && ./main",
    words: ["c", "cpp", "gcc", "clang", "cc"],
    text: `#include <iostream>
#include <string>

int main() {
    std::string name;
    if (!(std::cin >> name)) name = "world";
    std::cout << "Hello, " << name << "!\\n";
}
`,
  },
  {
    name: "Java",
    file: "Main.java",
    command: "javac Main.java && java Main",
    words: ["java", "jdk", "openjdk", "temurin", "corretto", "maven", "gradle"],
    text: `import java.util.Scanner;

public class Main {
    public static void main(String[] args) {
        Scanner in = new Scanner(System.in);
        System.out.println("Hello, " + (in.hasNext() ? in.next() : "world") + "!");
    }
}
`,
  },
  {
    name: "Go",
    file: "main.go",
    command: "go run *.go",
    words: ["go", "golang"],
    text: `package main

import "fmt"

func main() {
	name := "world"
	fmt.Scan(&name)
	fmt.Printf("Hello, %s!\\n", name)
}
`,
  },
  {
    name: "Rust",
    file: "main.rs",
    command: "rustc -o main main.rs && ./main",
    words: ["rust", "cargo"],
    text: `use std::io;

fn main() {
    let mut line = String::new();
    io::stdin().read_line(&mut line).unwrap();
    let name = line.trim();
    println!("Hello, {}!", if name.is_empty() { "world" } else { name });
}
`,
  },
  {
    name: "Ruby",
    file: "main.rb",
    command: "ruby main.rb",
    words: ["ruby", "jruby"],
    text: `name = ($stdin.gets || "").strip
puts "Hello, #{name.empty? ? "world" : name}!"
`,
  },
  {
    name: "Perl",
    file: "main.pl",
    command: "perl main.pl",
    words: ["perl"],
    text: `my $name = <STDIN> // "world";
chomp $name;
print "Hello, $name!\\n";
`,
  },
  {
    name: "Shell",
    file: "main.sh",
    command: "sh main.sh",
    words: [],
    text: `read -r name
echo "Hello, \${name:-world}!"
`,
  },
];

/** EnvironmentImage is the part of an environment that suggests its languages. */
export interface EnvironmentImage {
  id: string;
  image: string;
}

/**
 * presetsFor returns the samples that an environment can probably run, by the words of its id and image, always with
 * a shell. For an unknown image it returns all samples.
 */
export function presetsFor({ id, image }: EnvironmentImage): readonly Preset[] {
  const found = new Set(`${id} ${image}`.toLowerCase().split(/[^a-z0-9+]+/).map((word) => word.replace(/\d+$/, "").replace(/\+\+$/, "pp")));
  const likely = presets.filter((preset) => preset.words.some((word) => found.has(word)));
  if (likely.length > 0) return [...likely, presets.at(-1)!];
  const plain = ["shell", "sh", "bash", "busybox", "alpine", "basic"].some((word) => found.has(word));
  return plain ? [presets.at(-1)!] : [presets.at(-1)!, ...presets.slice(0, -1)];
}

/** begin returns a new program from a sample. */
export function begin(environment: EnvironmentImage, preset: Preset = presetsFor(environment)[0]!): Program {
  return { environment: environment.id, files: [{ name: preset.file, text: preset.text }], command: preset.command, args: "", stdin: "" };
}

/** untouched reports whether a program is an unchanged sample. */
export function untouched({ files, command }: Program): boolean {
  return files.length === 1 && presets.some((preset) => preset.file === files[0]!.name && preset.text === files[0]!.text && preset.command === command);
}
