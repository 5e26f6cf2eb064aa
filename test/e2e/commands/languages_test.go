package commands

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

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
	for _, test := range []struct{ language, program, file, source string }{
		{"python3", "python3", "p.py", "print('hi')"},
		{"c", "cc", "p.c", "#include <stdio.h>\nint main(void) { puts(\"hi\"); }"},
		{"cpp", "c++", "p.cpp", "#include <iostream>\nint main() { std::cout << \"hi\\n\"; }"},
		{"java", "javac", "Hi.java", "public class Hi { public static void main(String[] a) { System.out.println(\"hi\"); } }"},
		{"nodejs", "node", "p.js", "console.log('hi')"},
		{"php", "php", "p.php", "<?php echo 'hi', PHP_EOL;"},
		{"pascal", "fpc", "p.pas", "program p; begin writeln('hi') end."},
		{"ruby", "ruby", "p.rb", "puts 'hi'"},
		{"perl", "perl", "p.pl", "print \"hi\\n\";"},
		{"lua", "lua", "p.lua", "print 'hi'"},
		{"shell", "sh", "p.sh", "echo hi"},
		{"bash", "bash", "p.bash", "[[ hi == h* ]] && echo hi"},
	} {
		t.Run(test.language, func(t *testing.T) {
			if _, err := exec.LookPath(test.program); err != nil {
				need.Lacks(t, "this machine has no %s; scripts/needs tests installs it", test.program)
			}
			b.Put(t, object{"id": test.language, "resources": object{"memoryMiB": 768, "processes": 256}})
			path := filepath.Join(t.TempDir(), test.file)
			if err := os.WriteFile(path, []byte(test.source), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, errs, code := bed.RunProgram(t, nil, bed.Rockpool(t), "run", "--server", b.Address, path); out != "hi\n" || code != 0 {
				t.Errorf("%q %q %d", out, errs, code)
			}
		})
	}
}
