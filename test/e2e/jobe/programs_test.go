package jobe

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/need"
)

var (
	python = object{"id": "python", "resources": object{"memoryMiB": 96}}
	c      = object{"id": "c", "resources": object{"memoryMiB": 512}}
)

const echoing = `#include <stdio.h>
int main(int argc, char **argv) {
	for (int i = 1; i < argc; i++) puts(argv[i]);
	for (int c; (c = getchar()) != EOF;) putchar(c);
	return 7;
}
`

// TestE2EJobeOutcomes produces, in each language, each outcome that a program can cause, in real
// runners.
func TestE2EJobeOutcomes(t *testing.T) {
	m := serve(t, nil, python, c, object{"id": "shell"}, object{"id": "php"}, object{"id": "pascal", "resources": object{"memoryMiB": 512}}, object{"id": "node", "resources": object{"memoryMiB": 512, "processes": 256}},
		object{"id": "java", "resources": object{"memoryMiB": 768, "processes": 512}})
	for _, test := range []struct {
		name    string
		program string // that the machine must have
		spec    object
		want    result // Stderr and CmpInfo: a part of it
	}{
		{"Python", "", object{"language_id": "python3", "sourcecode": "print(input() * 2)", "input": "é\n"}, result{Outcome: 15, Stdout: "éé\n"}},
		{"Python as CodeRunner names it", "", object{"language_id": "Python3", "sourcecode": "import sys; print(sys.argv)", "sourcefilename": "__tester__.python3", "parameters": object{"runargs": []string{"a 'b c'"}}}, result{Outcome: 15, Stdout: "['__tester__.python3', 'a', 'b c']\n"}},
		{"Python's syntax", "", object{"language_id": "python3", "sourcecode": "print('never')\nprint('x'\n"}, result{Outcome: 11, CmpInfo: "SyntaxError"}},
		{"Python's indentation", "", object{"language_id": "python3", "sourcecode": "  print('never')\n print('x')\n"}, result{Outcome: 11, CmpInfo: "IndentationError"}},
		{"a syntax error while Python runs", "", object{"language_id": "python3", "sourcecode": "eval('1 +')"}, result{Outcome: 12, Stderr: "SyntaxError"}},
		{"an exception", "", object{"language_id": "python3", "sourcecode": "print(1)\n1/0"}, result{Outcome: 12, Stdout: "1\n", Stderr: "ZeroDivisionError"}},
		{"no writing of bytecode", "", object{"language_id": "python3", "sourcecode": "import sys; print(sys.dont_write_bytecode, sys.flags.ignore_environment)"}, result{Outcome: 15, Stdout: "True 1\n"}},
		{"another interpreter's arguments", "", object{"language_id": "python3", "sourcecode": "", "parameters": object{"interpreterargs": []string{`-c "print(\"$HOME; ls\")"`}}}, result{Outcome: 15, Stdout: "$HOME; ls\n"}},
		{"the memory of the environment", "", object{"language_id": "python3", "sourcecode": "print('a', flush=True)\nb = b'x' * (1 << 30)"}, result{Outcome: 17, Stdout: "a\n"}},
		{"processor time", "", object{"language_id": "python3", "sourcecode": "while True: pass", "parameters": object{"cputime": 1}}, result{Outcome: 13}},
		{"wall time", "", object{"language_id": "python3", "sourcecode": "import sys, time\nsys.stderr.write('b')\ntime.sleep(3600)", "parameters": object{"cputime": 1}}, result{Outcome: 13}},
		{"a template deletes its own files", "", object{"language_id": "python3", "sourcecode": "import os\nfor name in os.listdir(): os.rename(name, 'x'); os.remove('x')\nopen('prog.py', 'w').write('new')\nprint(os.listdir(), os.path.exists('/etc/pylintrc'))"}, result{Outcome: 15, Stdout: "['prog.py'] " + pylintrc() + "\n"}},
		{"bytes that aren't text", "", object{"language_id": "python3", "sourcecode": `import sys; sys.stdout.buffer.write(b"a\xff\n\x00\xc3\xa9")`}, result{Outcome: 15, Stdout: "a\\xff\n\\x00\\xc3\\xa9"}},
		{"a large file", "", object{"language_id": "python3", "sourcecode": "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nopen('f', 'wb').write(b'x' * 3000000)", "parameters": object{"disklimit": 2}}, result{Outcome: 12, Stderr: "File size limit exceeded"}},
		{"C", "gcc", object{"language_id": "c", "sourcecode": echoing, "input": "in\n", "parameters": object{"runargs": []string{"$(id)", `";" a`}}}, result{Outcome: 15, Stdout: "$(id)\n;\na\nin\n"}},
		{"a compiler's error", "gcc", object{"language_id": "c", "sourcecode": "int main() { return x; }", "sourcefilename": "mine.c"}, result{Outcome: 11, CmpInfo: "mine.c:1:21: error"}},
		{"a compiler's warning", "gcc", object{"language_id": "c", "sourcecode": "int main() { int x; return 0; }", "parameters": object{"compileargs": []string{"-Wall", "-x c"}}}, result{Outcome: 11, CmpInfo: "warning: unused variable"}},
		{"no warnings", "gcc", object{"language_id": "c", "sourcecode": "int main() { int x; return 0; }", "parameters": object{"compileargs": []string{"-w"}}}, result{Outcome: 15}},
		{"a compiler's arguments are no shell's", "gcc", object{"language_id": "c", "sourcecode": "int main() { return 0; }", "parameters": object{"compileargs": []string{"; echo x >&2 #"}}}, result{Outcome: 11, CmpInfo: "cannot find ;"}},
		{"a signal", "gcc", object{"language_id": "c", "sourcecode": "#include <stdio.h>\nint main() { puts(\"a\"); fflush(stdout); return *(volatile int *)0; }", "parameters": object{"compileargs": []string{"-O0"}}}, result{Outcome: 12, Stdout: "a\n", Stderr: "Segmentation fault\n"}},
		{"output", "gcc", object{"language_id": "c", "sourcecode": "#include <stdio.h>\nint main() { for (;;) puts(\"aaaaaaa\"); }", "parameters": object{"streamsize": 0.002}}, result{Outcome: 13, Stdout: strings.Repeat("aaaaaaa\n", 250)}},
		{"address space", "gcc", object{"language_id": "c", "sourcecode": "#include <stdio.h>\n#include <stdlib.h>\nint main() { puts(malloc(150000000) ? \"all\" : \"none\"); }", "parameters": object{"memorylimit": 100}}, result{Outcome: 15, Stdout: "none\n"}},
		{"more address space", "gcc", object{"language_id": "c", "sourcecode": "#include <stdio.h>\n#include <stdlib.h>\nint main() { puts(malloc(150000000) ? \"all\" : \"none\"); }", "parameters": object{"memorylimit": 200}}, result{Outcome: 15, Stdout: "all\n"}},
		{"processes", "gcc", object{"language_id": "c", "sourcecode": "#include <stdio.h>\n#include <unistd.h>\nint main() { int n = 0; for (int i = 0; i < 100; i++) { int p = fork(); if (!p) pause(); n += p > 0; } printf(\"%d\\n\", n); }", "parameters": object{"numprocs": 10}}, result{Outcome: 15, Stdout: "9\n"}},
		{"C++", "g++", object{"language_id": "cpp", "sourcecode": "#include <iostream>\nint main() { std::cout << \"a\" << std::endl; }"}, result{Outcome: 15, Stdout: "a\n"}},
		{"Java", "javac", object{"language_id": "java", "sourcefilename": "prog.java", "sourcecode": "public class Hi { public static void main(String[] a) { System.out.println(a[0]); } }", "parameters": object{"runargs": []string{"a"}}}, result{Outcome: 15, Stdout: "a\n"}},
		{"Java's errors", "javac", object{"language_id": "java", "sourcecode": "public class Hi { }}"}, result{Outcome: 11, CmpInfo: "Hi.java:1: error"}},
		{"JavaScript", "node", object{"language_id": "nodejs", "sourcefilename": "__tester__.nodejs", "sourcecode": "console.log(require('fs').readFileSync(0, 'utf8'))", "input": "a"}, result{Outcome: 15, Stdout: "a\n"}},
		{"JavaScript's syntax", "node", object{"language_id": "nodejs", "sourcecode": "console.log("}, result{Outcome: 12, Stderr: "SyntaxError"}},
		{"PHP", "php", object{"language_id": "php", "sourcecode": "<?php echo strtoupper(fgets(STDIN));", "input": "a\n"}, result{Outcome: 15, Stdout: "A\n"}},
		{"PHP's syntax", "php", object{"language_id": "php", "sourcecode": "<?php echo 'never'; echo ("}, result{Outcome: 11, CmpInfo: "Parse error"}},
		{"Pascal", "fpc", object{"language_id": "pascal", "sourcecode": "program p; begin writeln(6 * 7) end."}, result{Outcome: 15, Stdout: "42\n"}},
		{"Pascal's errors", "fpc", object{"language_id": "pascal", "sourcecode": "program p; begin writeln(x) end."}, result{Outcome: 11, CmpInfo: "Identifier not found"}},
		{"Bash", "bash", object{"language_id": "bash", "sourcecode": "echo $((6 * 7))"}, result{Outcome: 15, Stdout: "42\n"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			parameters, _ := test.spec["parameters"].(object)
			switch {
			case parameters["cputime"] != nil: // its time decides, so nothing runs in parallel
			case parameters == nil:
				test.spec["parameters"] = object{"cputime": 100}
				t.Parallel()
			default:
				parameters["cputime"] = 100
				t.Parallel()
			}
			if test.program != "" {
				if _, err := exec.LookPath(test.program); err != nil {
					need.Lacks(t, "this machine has no %s; scripts/needs tests installs it", test.program)
				}
			}
			got := m.run(t, test.spec)
			if got.ID == "" || got.Outcome != test.want.Outcome || got.Stdout != test.want.Stdout || !holds(got.Stderr, test.want.Stderr) || !holds(got.CmpInfo, test.want.CmpInfo) {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

// holds reports whether a text contains a part. If the part is "", the text must be empty.
func holds(text, part string) bool {
	if part == "" {
		return text == ""
	}
	return strings.Contains(text, part)
}

// pylintrc returns, in Python, whether the machine has a configuration of pylint, which programs of
// the image "host" see, too.
func pylintrc() string {
	if _, err := os.Stat("/etc/pylintrc"); err != nil {
		return "False"
	}
	return "True"
}

// TestE2EJobeHints: a result says what the program lacks, and its output doesn't.
func TestE2EJobeHints(t *testing.T) {
	m := serve(t, nil, python)
	for source, want := range map[string]string{"import nonesuch_module": "lacks the module nonesuch_module", "import sys; sys.exit(1)": ""} {
		got := m.run(t, object{"language_id": "python3", "sourcecode": source})
		if (got.Hint == "") != (want == "") || !strings.Contains(got.Hint, want) || strings.Contains(got.Stdout+got.Stderr, "lacks the module") {
			t.Errorf("%s: %+v", source, got)
		}
	}
}
