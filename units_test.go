package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestUnitsCommandLines: the units for systemd have flags that the commands know, and a
// server stops before systemd kills it.
func TestUnitsCommandLines(t *testing.T) {
	for _, name := range []string{"rockpool.service", "rockpool-helper.service", "rockpool-unprivileged.conf"} {
		text, err := os.ReadFile(filepath.Join("packaging", name))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			value, is := strings.CutPrefix(strings.TrimSpace(line), "ExecStart=")
			program := strings.Fields(value)
			if !is || len(program) == 0 {
				continue
			}
			if program[1] != "serve" {
				if _, err := parseHelper(t, program[2:]...); err != nil {
					t.Errorf("%s: %s: %v", name, line, err)
				}
				continue
			}
			command, err := parseServe(t, program[2:]...)
			if err != nil {
				t.Errorf("%s: %s: %v", name, line, err)
			}
			_, after, is := strings.Cut(string(text), "\nTimeoutStopSec=")
			if !is {
				continue // the other file has it
			}
			patience, err := time.ParseDuration(strings.Fields(after)[0])
			if err != nil || command.StopWithin >= 5*time.Second || patience < command.StopWithin+time.Second {
				t.Errorf("it has %v to stop, and may take %v (%v)", patience, command.StopWithin, err)
			}
		}
	}
}
