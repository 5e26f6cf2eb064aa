package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestVirtualMachineListNamesTests: each line of scripts/vm-list names a package that runs in the
// virtual machine, and tests of it. So no exception outlives its test.
func TestVirtualMachineListNamesTests(t *testing.T) {
	list, err := os.ReadFile("scripts/vm-list")
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string][]string{} // by package
	for line := range strings.Lines(string(list)) {
		field := strings.Fields(line)
		if len(field) == 0 || strings.HasPrefix(field[0], "#") {
			continue
		}
		if field[0] == "package" {
			files, _ := filepath.Glob(filepath.Join(field[1], "*_test.go"))
			for _, file := range files {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				for _, found := range regexp.MustCompile(`(?m)^func (Test\w+)\(t `).FindAllSubmatch(text, -1) {
					tests[field[1]] = append(tests[field[1]], string(found[1]))
				}
			}
			if len(tests[field[1]]) == 0 {
				t.Errorf("there are no tests in %s", field[1])
			}
			continue
		}
		if len(field) < 4 {
			t.Errorf("%q lacks a column: when, package, tests, reason", line)
			continue
		}
		for name := range strings.SplitSeq(field[2], "|") {
			matches := regexp.MustCompile("^(?:" + name + ")$")
			some := false
			for _, test := range tests[field[1]] {
				some = some || matches.MatchString(test)
			}
			if !some {
				t.Errorf("scripts/vm-list: %s has no test %s", field[1], name)
			}
		}
	}
}

// TestScriptsParse finds syntax errors of the scripts, also of those that only a late phase runs.
func TestScriptsParse(t *testing.T) {
	scripts, err := filepath.Glob("scripts/*")
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	for _, script := range scripts {
		if script == "scripts/vm-list" { // data
			continue
		}
		text, err := os.ReadFile(script)
		if err != nil {
			t.Fatal(err)
		}
		if first, _, _ := bytes.Cut(text, []byte("\n")); !bytes.Contains(first, []byte("bash")) && filepath.Base(script) != "vm-lib" {
			t.Errorf("%s isn't a script of bash", script)
		}
		if said, err := exec.Command("bash", "-n", script).CombinedOutput(); err != nil {
			t.Errorf("%s: %v, %s", script, err, said)
		}
	}
}

// TestUninstallUndoesInstall leaves the settings, and nothing that was installed.
func TestUninstallUndoesInstall(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	clone, root := t.TempDir(), t.TempDir() // the clone has a built program
	settings := filepath.Join(root, "etc/rockpool/config.yaml")
	if err := errors.Join(
		os.Symlink(filepath.Join(here, "packaging"), filepath.Join(clone, "packaging")),
		os.Mkdir(filepath.Join(clone, "bin"), 0o755), os.WriteFile(filepath.Join(clone, "bin/rockpool"), nil, 0o755),
		os.MkdirAll(filepath.Dir(settings), 0o755), os.WriteFile(settings, nil, 0o644),
	); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		text, err := exec.Command("make", append([]string{"-C", clone, "-f", filepath.Join(here, "Makefile")}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		return string(text)
	}
	files := func() (all []string) {
		t.Helper()
		if err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() {
				all = append(all, path)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return all
	}
	run("install", "DESTDIR="+root)
	if got := len(files()); got < 6 {
		t.Errorf("%d files are installed", got)
	}
	run("uninstall", "DESTDIR="+root)
	if got := files(); len(got) != 1 || got[0] != settings {
		t.Errorf("got %q, want %s", got, settings)
	}
	// The service manager forgets the units after their files are deleted.
	text := run("-n", "uninstall")
	if strings.LastIndex(text, "systemctl daemon-reload") < strings.Index(text, "rm -f") {
		t.Errorf("the service manager keeps the units: %s", text)
	}
}
