package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/attack"
	"github.com/rockpool/rockpool/attack/world"
	"github.com/rockpool/rockpool/cli"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/engine"
)

// runAttacks carries out the corpus on a server of its own, tells how it goes,
// and keeps the report where the server that others use finds it.
func (c *doctorCommand) runAttacks(ctx context.Context, config Config, s cli.Streams) error {
	files, err := os.MkdirTemp("", "rockpool-doctor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(files)
	kept := config.Data
	config.Images.Files = files
	var place attack.Place
	around, err := apart(ctx, &config)
	if err != nil {
		place.NoNetwork = err.Error()
	} else {
		defer func() { _ = around.Close() }()
	}
	rows := attack.Corpus()
	progress := func(format string, args ...any) {
		if !c.JSON {
			_, _ = fmt.Fprintf(s.Out, format, args...)
		}
	}
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(s.Err, "rockpool: "+format+"\n", args...) }
	var report attack.Report
	err = runPrivate(ctx, config, zap.NewNop(), say, func(ctx context.Context, server *Server) error {
		client := server.Client()
		defer client.CloseIdle()
		class, number := attack.Class(""), 0
		progress("%d attacks, in isolation %s\n", len(rows), c.Isolation)
		if around != nil {
			if tried := tryNetwork(ctx, server); tried.Status == verdictWarn {
				place.NoNetwork = tried.Message
			}
		}
		var err error
		report, err = attackServer(ctx, server.config, client, around, runtime.Isolation(c.Isolation), rows, place, func(r attack.Result) {
			if r.Class != class {
				class = r.Class
				progress("\n%s\n", class)
			}
			number++
			progress("%s", line(number, r))
		})
		return err
	})
	if len(report.Results) > 0 {
		// One that was broken off shows what didn't hold, but not that all did.
		if whole := len(report.Results) == len(rows); whole || !report.OK() {
			switch err := keepReport(kept, report); {
			case errors.Is(err, fs.ErrNotExist):
				say("no server has had the data directory %s yet, so the report isn't kept for one's health", kept)
			case err != nil:
				say("the report can't be kept for the server: %v", err)
			}
		}
		err = errors.Join(err, c.printReport(s, report, len(rows)))
	}
	switch {
	case ctx.Err() != nil:
		return cli.ExitError(cli.CodeInterrupted)
	case err == nil && !report.OK():
		return cli.ExitError(1)
	}
	return err
}

// printReport prints what came of the attacks, of so many that were to be tried.
func (c *doctorCommand) printReport(s cli.Streams, report attack.Report, all int) error {
	if c.JSON {
		encoder := json.NewEncoder(s.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	}
	text := verdictOf(report)
	if missing := all - len(report.Results); missing > 0 {
		text += fmt.Sprintf("\nIt was broken off: %d more were to be tried.", missing)
	}
	_, err := fmt.Fprintf(s.Out, "\n%s\n", text)
	return err
}

// line is what is printed of an attack.
func line(number int, r attack.Result) string {
	switch {
	case r.Skipped != "":
		return fmt.Sprintf("%4d  SKIP  %s: %s\n", number, r.Name, r.Skipped)
	case r.Held:
		return fmt.Sprintf("%4d  HELD  %-40s %s\n", number, r.Name, r.Defence)
	}
	seen := "\n" + strings.TrimRight(r.Seen, "\n")
	return fmt.Sprintf("%4d  FAIL  %s, %s\n            should have been held off by %s: %s%s\n", number, r.Name, r.Tries, r.Defence, r.Why,
		strings.ReplaceAll(seen, "\n", "\n            | "))
}

func verdictOf(r attack.Report) string {
	text := fmt.Sprintf("%d of %d attacks were held off in %.0f s, in isolation %s.", r.Held, r.Tried, r.Seconds, r.Tier)
	if r.Skipped > 0 {
		text += fmt.Sprintf(" %d aren't for it.", r.Skipped)
	}
	if !r.OK() {
		text += "\nDon't run strangers' programs here. Report what failed, with rockpool doctor --attack --json and rockpool doctor --json: docs/security.md says where."
	}
	return text
}

// attackServer carries out attacks on a server of this machine with these
// settings, which nobody else uses, with a world around them or none.
func attackServer(ctx context.Context, config Config, server *client.Client, around *world.World, tier runtime.Isolation, rows []attack.Attack, place attack.Place, told func(attack.Result)) (attack.Report, error) {
	machine, err := newAttackMachine(config, around)
	if err != nil {
		return attack.Report{}, err
	}
	defer machine.close()
	if err := os.MkdirAll(config.Images.Files, 0o700); err != nil {
		return attack.Report{}, err
	}
	machine.bait.Share = cmp.Or(place.Bait.Share, machine.bait.Share)
	place.Server, place.Tier, place.Outside, place.Bait, place.Images = server, tier, machine, machine.bait, config.Images.Files
	if around == nil && place.NoNetwork == "" {
		place.NoNetwork = "there is no world around them"
	}
	return attack.Run(ctx, place, rows, told)
}

// reportFile is where the last report of a tier is kept, in the data directory.
func reportFile(data string, tier runtime.Isolation) string {
	return filepath.Join(data, "attacks-"+strings.ToLower(string(tier))+".json")
}

// keepReport writes a report where the data directory's owner, who may be less
// than root, can't have had it be written elsewhere.
func keepReport(data string, report attack.Report) (err error) {
	text, err := json.Marshal(report)
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(data, ".attacks-*") // it follows no link
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	_, err = file.Write(text)
	if err := errors.Join(err, file.Chmod(0o644), file.Close()); err != nil { // the server may be another user
		return err
	}
	return os.Rename(file.Name(), reportFile(data, report.Tier))
}

// lastAttacks returns what the reports in a data directory come to: of the tier
// where not all was held off, else of the one that was attacked last; nil if
// there is none.
func lastAttacks(data string) (*engine.Attacks, error) {
	var last *engine.Attacks
	for _, tier := range []runtime.Isolation{runtime.IsolationNamespaces, runtime.IsolationGVisor} {
		report, err := readReport(reportFile(data, tier))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("the report of the last attacks: %w", err)
		}
		attacks := attacksOf(report)
		failed := func(a *engine.Attacks) bool { return a.Tried == 0 || a.Held < a.Tried }
		if last == nil || failed(attacks) && !failed(last) || failed(attacks) == failed(last) && attacks.At.After(last.At) {
			last = attacks
		}
	}
	return last, nil
}

func readReport(path string) (report attack.Report, err error) {
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &report)
	}
	return report, err
}

func attacksOf(report attack.Report) *engine.Attacks {
	all := &engine.Attacks{At: report.At, Isolation: report.Tier, Version: report.Version, Tried: report.Tried, Held: report.Held, Failed: []string{}}
	for _, r := range report.Results {
		if !r.Held && r.Skipped == "" {
			all.Failed = append(all.Failed, r.Name)
		}
	}
	return all
}
