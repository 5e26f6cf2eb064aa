package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestScriptsParse finds syntax errors of the scripts, also of those that only a late phase runs.
func TestScriptsParse(t *testing.T) {
	scripts, err := filepath.Glob("scripts/*")
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	for _, script := range scripts {
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
