package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/nomadtest"
)

// TestE2EBenchOnNomad measures a few rows on a real Nomad with one of the drivers. It checks the
// report, and that nothing is left in Nomad.
func TestE2EBenchOnNomad(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{ACL: true, TLS: true})
	temporary := t.TempDir()
	cmd := thisProgram(t, "--cluster", "nomad", "--quick", "--rounds", "1", "--json",
		"--row", "nomad/start/*", "--row", "nomad/refill/raw_exec", "--row", "nomad/claim", "--row", "nomad/first-output/raw_exec", "--row", "nomad/true/8")
	ca, cert, key := n.TLS()
	cmd.Env = append(os.Environ(), "TMPDIR="+temporary, "NOMAD_ADDR="+n.Address(), "NOMAD_TOKEN="+n.Token(),
		"NOMAD_CACERT="+ca, "NOMAD_CLIENT_CERT="+cert, "NOMAD_CLIENT_KEY="+key)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s%s", err, stdout.String(), stderr.String())
	}
	var report measure.Report
	if err := json.Unmarshal([]byte(stdout.String()), &report); err != nil {
		t.Fatalf("%v: %s", err, stdout.String())
	}
	wanted := []string{"nomad/start/raw_exec", "nomad/refill/raw_exec", "nomad/claim", "nomad/first-output/raw_exec", "nomad/true/8"}
	if len(report.Rows) != len(wanted) {
		t.Fatalf("%d rows, want %q: %s", len(report.Rows), wanted, stderr.String())
	}
	for i, row := range report.Rows {
		if row.Name != wanted[i] || row.Error != "" || row.Row.N == 0 || row.Row.Min <= 0 || row.Floor.Min <= 0 || row.Ratio <= 0 || row.CPU == nil || row.CPU.Server <= 0 {
			t.Errorf("%+v", row)
		}
	}
	if note := report.Rows[0].Note; !strings.Contains(note, "agent fetched and task started") || !strings.Contains(note, "agent's answer and claim") {
		t.Errorf("where a start goes: %q", note)
	}
	if !strings.Contains(stderr.String(), "left out: nomad/start/docker: no node has the driver docker\n") {
		t.Errorf("the rows left out aren't reported: %s", stderr.String())
	}
	jobs, _, err := n.API().Jobs().PrefixList("rockpool-bench-")
	if err != nil || len(jobs) > 0 {
		t.Errorf("%d jobs are left, %v", len(jobs), err)
	}
	variables, _, err := n.API().Variables().PrefixList("rockpool-bench-", nil)
	if err != nil || len(variables) > 0 {
		t.Errorf("%d variables are left, %v", len(variables), err)
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestE2EBenchOnNomadCountsLists recovers a server through a proxy that counts its lists.
func TestE2EBenchOnNomadCountsLists(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{})
	cmd := thisProgram(t, "--cluster", "nomad", "--quick", "--rounds", "1", "--json", "--row", "nomad/recover/200", "--row", "nomad/watch/1")
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "NOMAD_ADDR="+n.Address())
	out, err := cmd.Output()
	var report measure.Report
	if unreadable := json.Unmarshal(out, &report); err != nil || unreadable != nil || len(report.Rows) != 2 {
		t.Fatalf("%v, %v: %s", err, unreadable, out)
	}
	for _, row := range report.Rows {
		if row.Error != "" || row.Row.Min <= 0 || row.Floor.Min <= 0 {
			t.Errorf("%+v", row)
		}
	}
	if note := report.Rows[1].Note; !strings.Contains(note, "until all 40 were there: ") || strings.Contains(note, ": 0.00") {
		t.Errorf("lists: %q", note)
	}
}

func TestBenchRefusesANomadThatDoesNotAnswer(t *testing.T) {
	need.Sandboxes(t) // it refuses other users than root first
	t.Setenv("NOMAD_ADDR", "http://127.0.0.1:1")
	for want, args := range map[string][]string{
		"$NOMAD_ADDR":          {"--cluster", "nomad"},
		"need --cluster nomad": {"--image", "x"},
		"see --list":           {"--cluster", "nomad", "--row", "keystroke"},
	} {
		var out, errs strings.Builder
		if code := execute(args, command.Streams{Out: &out, Err: &errs}); code == 0 || !strings.Contains(errs.String(), want) {
			t.Errorf("%q: exit %d, %s", args, code, errs.String())
		}
	}
	var out, errs strings.Builder
	if code := execute([]string{"--list", "--cluster", "nomad"}, command.Streams{Out: &out, Err: &errs}); code != 0 || !strings.Contains(out.String(), "nomad/claim (ms)\n") || strings.Contains(out.String(), "keystroke") {
		t.Errorf("--list: exit %d, %s%s", code, out.String(), errs.String())
	}
}
