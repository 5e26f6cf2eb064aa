package commands

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/local/host"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/need"
)

// TestE2EPrivateServerServesThisMachinesLanguages: a private server makes an environment for a
// language that no starter serves, if the machine has its program.
func TestE2EPrivateServerServesThisMachinesLanguages(t *testing.T) {
	privately(t)
	if _, err := os.Stat("/usr/bin/perl"); err != nil {
		need.Lacks(t, "this machine has no /usr/bin/perl; scripts/needs tests installs it")
	}
	path := filepath.Join(t.TempDir(), "p.pl")
	if err := os.WriteFile(path, []byte("print \"hi\\n\";"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, arguments := range [][]string{{"run", path}, {"run", "--env", "perl", path}} {
		if out, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), arguments...); out != "hi\n" || code != 0 {
			t.Errorf("%q: %q %q %d", arguments, out, errs, code)
		}
	}
}

// TestE2ERecipes: the recipe of each language that Debian has builds an image and runs a program.
// `rockpool run` selects it by the file's name.
func TestE2ERecipes(t *testing.T) {
	t.Parallel()
	b := bed.Open(t)
	for _, test := range append([]program{
		{"python3", "python3", "p.py", "print('hi')"},
		{"c", "cc", "p.c", "#include <stdio.h>\nint main(void) { puts(\"hi\"); }"},
		{"cpp", "c++", "p.cpp", "#include <iostream>\nint main() { std::cout << \"hi\\n\"; }"},
		{"java", "javac", "Hi.java", "public class Hi { public static void main(String[] a) { System.out.println(\"hi\"); } }"},
		{"java", "javac", "Test.java", "/*\npublic class Old {}\n*/\nclass Solution { public static void main(String[] a) { System.out.println(\"hi\"); } }"},
		{"java", "javac", "App.java", "package com.example;\npublic class Other { public static void main(String[] a) { System.out.println(\"hi\"); } }"},
		{"nodejs", "node", "p.js", "console.log('hi')"},
		{"php", "php", "p.php", "<?php echo 'hi', PHP_EOL;"},
		{"pascal", "fpc", "p.pas", "program p; begin writeln('hi') end."},
		{"ruby", "ruby", "p.rb", "puts 'hi'"},
		{"perl", "perl", "p.pl", "print \"hi\\n\";"},
		{"lua", "lua", "p.lua", "print 'hi'"},
		{"shell", "sh", "p.sh", "echo hi"},
		{"bash", "bash", "p.bash", "[[ hi == h* ]] && echo hi"},
	}, installed()...) {
		t.Run(test.file, func(t *testing.T) {
			if !hasProgram(test.tool) {
				need.Lacks(t, "this machine has no %s; scripts/needs tests installs it", test.tool)
			}
			b.Put(t, object{"id": test.language, "poolSize": 0, "resources": object{"memoryMiB": 1536, "processes": 256, "workspaceMiB": 256}})
			path := filepath.Join(t.TempDir(), test.file)
			if err := os.WriteFile(path, []byte(test.source), 0o600); err != nil {
				t.Fatal(err)
			}
			arguments := []string{"run", "--server", b.Address, path}
			if test.language == "objectivec" { // .m is Octave's
				arguments = append(arguments[:3], "--env", test.language, path)
			}
			if out, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), arguments...); out != "hi\n" || code != 0 {
				t.Errorf("%q %q %d", out, errs, code)
			}
		})
	}
}

// A program prints hi. tool is the program of the machine that its language needs.
type program struct{ language, tool, file, source string }

// installed returns the programs in languages that scripts/needs doesn't install and that this machine has.
func installed() (there []program) {
	for _, p := range []program{
		{"go", "go", "p.go", "package main\nimport \"fmt\"\nfunc main() { fmt.Println(\"hi\") }"},
		{"rust", "rustc", "p.rs", "fn main() { println!(\"hi\"); }"},
		{"octave", "octave-cli", "p.m", "printf('hi\\n')"},
		{"r", "Rscript", "p.R", "cat('hi\\n')"},
		{"typescript", "tsc", "p.ts", "const s: string = 'hi'; console.log(s);"},
		{"csharp", "mcs", "p.cs", "using System; class P { static void Main() { Console.WriteLine(\"hi\"); } }"},
		{"fortran", "gfortran", "p.f90", "program p\nprint '(a)', 'hi'\nend program\n"},
		{"haskell", "ghc", "p.hs", "main = putStrLn \"hi\""},
		{"ocaml", "ocamlopt", "p.ml", "print_endline \"hi\""},
		{"kotlin", "kotlinc", "p.kt", "fun main() { println(\"hi\") }"},
		{"scala", "scala", "p.scala", "object M { def main(a: Array[String]): Unit = println(\"hi\") }"},
		{"groovy", "groovy", "p.groovy", "println 'hi'"},
		{"clojure", "clojure", "p.clj", "(println \"hi\")"},
		{"erlang", "escript", "p.erl", "#!/usr/bin/env escript\nmain(_) -> io:format(\"hi~n\").\n"},
		{"elixir", "elixir", "p.exs", "IO.puts \"hi\""},
		{"lisp", "sbcl", "p.lisp", "(format t \"hi~%\")"},
		{"scheme", "guile", "p.scm", "(display \"hi\") (newline)"},
		{"racket", "racket", "p.rkt", "#lang racket/base\n(displayln \"hi\")"},
		{"prolog", "swipl", "p.pro", ":- initialization(main).\nmain :- writeln(hi).\n"},
		{"ada", "gnatmake", "p.adb", "with Ada.Text_IO; use Ada.Text_IO;\nprocedure Hello is\nbegin\n Put_Line(\"hi\");\nend Hello;\n"},
		{"d", "gdc", "p.d", "import std.stdio; void main() { writeln(\"hi\"); }"},
		{"objectivec", "/usr/lib/gcc/x86_64-linux-gnu/12/cc1obj", "main.mm", "#import <stdio.h>\n#import <objc/Object.h>\n@interface A : Object\n+(void)f;\n@end\n@implementation A\n+(void)f { puts(\"hi\"); }\n@end\nint main(void) { [A f]; return 0; }\n"},
		{"nasm", "nasm", "p.asm", "global _start\nsection .data\nm: db \"hi\", 10\nsection .text\n_start: mov rax, 1\nmov rdi, 1\nmov rsi, m\nmov rdx, 3\nsyscall\nmov rax, 60\nxor rdi, rdi\nsyscall\n"},
		{"nasm", "nasm", "c.asm", "global main\nextern puts\nsection .data\nm: db \"hi\", 0\nsection .text\nmain: sub rsp, 8\nmov rdi, m\ncall puts\nxor eax, eax\nadd rsp, 8\nret\n"},
		{"cobol", "cobc", "p.cob", "IDENTIFICATION DIVISION.\nPROGRAM-ID. P.\nPROCEDURE DIVISION.\nDISPLAY \"hi\".\nSTOP RUN.\n"},
		{"nim", "nim", "p.nim", "echo \"hi\""},
		{"crystal", "crystal", "p.cr", "puts \"hi\""},
		{"vala", "valac", "p.vala", "void main() { print(\"hi\\n\"); }"},
		{"sql", "sqlite3", "p.sql", "select 'hi';"},
		{"tcl", "tclsh", "p.tcl", "puts hi"},
		{"awk", "awk", "p.awk", "BEGIN { print \"hi\" }"},
		{"basic", "yabasic", "p.bas", "print \"hi\"\n"},
		{"forth", "gforth", "p.fth", ".\" hi\" cr"},
		{"coffeescript", "coffee", "p.coffee", "console.log 'hi'"},
		{"algol68", "a68g", "p.a68", "print((\"hi\", new line))"},
	} {
		if hasProgram(p.tool) {
			there = append(there, p)
		}
	}
	return there
}

// hasProgram reports whether runners of the image host have a program. A user's own search path may have
// directories that they don't have, such as ~/.cargo/bin.
func hasProgram(name string) bool {
	if filepath.IsAbs(name) {
		_, err := os.Stat(name)
		return err == nil
	}
	return host.FindProgram(name) != ""
}

// TestE2EUsersMistakes: the exit code says that the mistake is the user's, as in a shell. It isn't
// parallel: TestE2ERecipes puts the environment go too.
func TestE2EUsersMistakes(t *testing.T) {
	b := bed.Open(t)
	b.Put(t, object{"id": "go", "resources": object{"memoryMiB": 1024, "processes": 256, "workspaceMiB": 512}})
	dir := t.TempDir()
	for name, source := range map[string]string{"foo.go": "package foo\n", "data": "x"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Truncate(filepath.Join(dir, "data"), 107e6); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		needs, arguments string
		code             int
		says             string
	}{
		{"go", "foo.go", 1, "main package"},
		{"sh", "--env shell -- nonesuch", 127, "nonesuch: command not found"},
		{"sh", "--env shell -- ./nonesuch", 127, "./nonesuch: no such file"},
		{"sh", "--env shell -- /etc/passwd", 126, "isn't executable"},
		{"sh", "--env shell -- /usr", 126, "is a directory"},
		{"sh", "none.py", 2, "the file none.py doesn't exist"},
		{"sh", "--env shell --file none -- true", 2, "none: no such file"},
		{"sh", "--env shell --file data -- true", 2, "upload data, of 107000000 bytes: the body must be at most 33554432 bytes"},
		{"sh", "data", 2, "data has no known file extension"},
	} {
		t.Run(test.arguments, func(t *testing.T) {
			if !hasProgram(test.needs) {
				need.Lacks(t, "this machine has no %s; scripts/needs tests installs it", test.needs)
			}
			_, errs, code := bed.RunProgram(t, nil, "env", append([]string{"-C", dir, bed.Rockpool(t), "run", "--server", b.Address}, strings.Fields(test.arguments)...)...)
			if code != test.code || !strings.Contains(errs, test.says) {
				t.Errorf("%d %q", code, errs)
			}
		})
	}
}
