package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/rockpool/rockpool/test/chaos/house"
	"github.com/rockpool/rockpool/test/chaos/ledger"
	"github.com/rockpool/rockpool/test/chaos/moment"
)

// A Report has the results of a run.
type Report struct {
	Seed    uint64           `json:"seed"`
	Took    float64          `json:"tookSeconds"`
	Short   bool             `json:"short"`
	Several bool             `json:"several"` // there were concurrent servers
	Nomad   bool             `json:"nomad"`   // the runners were on Nomad, and the servers had no scheduler
	Parts   map[string]int64 `json:"parts"`   // uses of each part of the scheduler, as the servers counted
	Counts  map[string]int64 `json:"counts"`  // all other figures, by name
	Wrongs  []ledger.Wrong   `json:"wrongs"`
	Log     string           `json:"log,omitempty"` // path of the servers' log, kept if something was wrong
}

// newReport returns the report of a run that has ended.
func newReport(config Config, l *ledger.Ledger, used map[string]int64, took time.Duration) Report {
	counts, wrongs := l.Figures()
	return Report{Seed: config.Seed, Took: took.Seconds(), Short: config.Short, Nomad: config.Nomad != "", Several: config.Servers > 1, Parts: used, Counts: counts, Wrongs: wrongs}
}

// Failures returns what must not happen and did. Unless the run was short, it also returns what
// must happen and didn't.
func (r Report) Failures() []string {
	var all []string
	for _, name := range ledger.MustBeNone {
		if n := r.Counts[name]; n != 0 {
			all = append(all, fmt.Sprintf("%s: %d, not 0", name, n))
		}
	}
	always, wanted := r.wanted()
	if !r.Short {
		always = append(always, wanted...)
	}
	for _, name := range always {
		if r.Counts[name]+r.Parts[name] == 0 {
			all = append(all, name+": 0")
		}
	}
	return all
}

// wanted returns the figures that must be above 0: in every run, and in a run that isn't short.
func (r Report) wanted() (always, long []string) {
	always = []string{ledger.Kills, ledger.Disconnects, ledger.Executions, ledger.BytesExpected, ledger.Claims, ledger.Uploads}
	if r.Nomad {
		long = append(long, ledger.TasksKilled, ledger.JobsEnded, ledger.Drained, ledger.NomadKills, ledger.NomadFreezes)
	} else {
		long = append(long, house.Parts()...)
		for m := range moment.Count {
			if m != moment.Any {
				long = append(long, ledger.KillsDuring(m))
			}
		}
		long = append(long, ledger.StopsRestoring, ledger.KilledHeld, ledger.KilledIdle, ledger.KilledStarting, ledger.Destroyed)
	}
	if r.Several {
		long = append(long, ledger.DockerKills, ledger.DatabaseFaults)
	} else {
		long = append(long, ledger.Fills)
	}
	return always, append(long, ledger.KillsRestoring, ledger.Stops, ledger.CutUploads, ledger.Rewinds)
}

// Table writes a report for people.
func (r Report) Table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	row := func(name string, n int64, remark string) { _, _ = fmt.Fprintf(w, "%d\t  %s%s\n", n, name, remark) }
	section := func(title string) { _, _ = fmt.Fprintf(w, "\t\n\t  %s\n", strings.ToUpper(title)) }
	var used []string
	if !r.Nomad {
		section("parts of the scheduler that were used")
		used = house.Parts()
		for _, part := range used {
			row(part, r.Parts[part], r.remark(part, r.Parts[part]))
		}
	}
	section("what happened")
	always, long := r.wanted()
	shown := append(slices.Clone(always), long[len(used):]...)
	rest := slices.Sorted(maps.Keys(r.Counts))
	for _, name := range append(shown, slices.DeleteFunc(rest, func(name string) bool {
		return slices.Contains(shown, name) || slices.Contains(ledger.MustBeNone, name)
	})...) {
		row(name, r.Counts[name], r.remark(name, r.Counts[name]))
	}
	section("what must not happen")
	for _, name := range ledger.MustBeNone {
		remark := ""
		if r.Counts[name] != 0 {
			remark = "  FAILED"
		}
		row(name, r.Counts[name], remark)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return r.details(out)
}

// remark returns what follows a count in the report: a failure if it had to happen and never did.
func (r Report) remark(name string, n int64) string {
	always, long := r.wanted()
	switch {
	case n > 0:
		return ""
	case slices.Contains(always, name) || slices.Contains(long, name) && !r.Short:
		return "  FAILED: never happened"
	default:
		return ""
	}
}

// details writes the first few wrongs.
func (r Report) details(out io.Writer) error {
	const most = 30
	for i, wrong := range r.Wrongs {
		if i == most {
			_, err := fmt.Fprintf(out, "… and %d more\n", len(r.Wrongs)-most)
			return err
		}
		if _, err := fmt.Fprintf(out, "%s  %s: %s\n", wrong.At.Format("15:04:05.000"), wrong.Kind, wrong.Detail); err != nil {
			return err
		}
	}
	return nil
}
