package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/doctor/attack"
	"github.com/rockpool/rockpool/doctor/attack/world"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/health"
	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/server/private"
)

// runAttacks runs the attack corpus on a private server and prints the results as they arrive. It
// stores the report in the data directory, where the real server reads it.
func (c *Command) runAttacks(ctx context.Context, settings config.Config, s command.Streams) error {
	files, err := os.MkdirTemp("", "rockpool-doctor-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(files)
	kept := settings.Data
	settings.Images.Files = files
	var target attack.Target
	around, err := OfferWorld(ctx, &settings)
	if err != nil {
		target.NoNetwork = err.Error()
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
	err = private.Run(ctx, settings, zap.NewNop(), say, func(ctx context.Context, srv *server.Server) error {
		caller := srv.Client()
		defer caller.CloseIdle()
		class, number := attack.Class(""), 0
		progress("%d attacks, isolation tier %s\n", len(rows), c.Isolation)
		if around != nil {
			if tried := tryNetwork(ctx, srv); tried.Status == health.Warn {
				target.NoNetwork = tried.Message
			}
		}
		var err error
		report, err = AttackServer(ctx, srv.Config(), caller, around, runtime.Isolation(c.Isolation), rows, target, func(r attack.Result) {
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
		// An interrupted run can show that an attack succeeded, but not that all failed.
		if whole := len(report.Results) == len(rows); whole || !report.OK() {
			if err := Record(report).Store(kept); err != nil {
				say("%s", notKept(kept, err))
			}
		}
		err = errors.Join(err, c.printReport(s, report, len(rows)))
	}
	switch {
	case ctx.Err() != nil:
		return command.ExitError(command.CodeInterrupted)
	case err == nil && !report.OK():
		return command.ExitError(1)
	}
	return err
}

// notKept returns a message that says why the report couldn't be stored in a data directory.
func notKept(data string, err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Sprintf("the report isn't stored, so no server shows it in its health: the data directory %s doesn't exist; give the one of your server with --data (or ROCKPOOL_DATA)", data)
	}
	return fmt.Sprintf("the report couldn't be stored for the server: %v", err)
}

// printReport prints the result of the attacks. all is the number of attacks in the corpus.
func (c *Command) printReport(s command.Streams, report attack.Report, all int) error {
	if c.JSON {
		encoder := json.NewEncoder(s.Out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(report)
	}
	text := verdictOf(report)
	if missing := all - len(report.Results); missing > 0 {
		text += fmt.Sprintf("\nInterrupted: %d attacks weren't tried.", missing)
	}
	_, err := fmt.Fprintf(s.Out, "\n%s\n", text)
	return err
}

func line(number int, r attack.Result) string {
	switch {
	case r.Skipped != "":
		return fmt.Sprintf("%4d  SKIP  %s: %s\n", number, r.Name, r.Skipped)
	case r.Held:
		return fmt.Sprintf("%4d  HELD  %-40s %s\n", number, r.Name, r.Defence)
	}
	seen := "\n" + strings.TrimRight(r.Seen, "\n")
	return fmt.Sprintf("%4d  FAIL  %s, %s\n            should have been stopped by %s: %s%s\n", number, r.Name, r.Tries, r.Defence, r.Why,
		strings.ReplaceAll(seen, "\n", "\n            | "))
}

// verdictOf summarizes a report for a person: the numbers, and advice if an attack succeeded.
func verdictOf(r attack.Report) string {
	text := fmt.Sprintf("%d of %d attacks were stopped in %.0f s, isolation tier %s.", r.Held, r.Tried, r.Seconds, r.Tier)
	if r.Skipped > 0 {
		text += fmt.Sprintf(" %d don't apply to this tier or machine.", r.Skipped)
	}
	if !r.OK() {
		text += "\nDon't run untrusted programs on this machine. Report the failures with the output of `rockpool doctor --attack --json` and `rockpool doctor --json`; docs/security.md says where."
	}
	return text
}

// AttackServer runs attacks on a server on this machine with these settings. Nothing else may use
// the server. around is the simulated network around the runners, or nil. AttackServer calls
// report with each result.
func AttackServer(ctx context.Context, settings config.Config, caller *client.Client, around *world.World, tier runtime.Isolation, rows []attack.Attack, target attack.Target, report func(attack.Result)) (attack.Report, error) {
	machine, err := newAttackMachine(settings, around)
	if err != nil {
		return attack.Report{}, err
	}
	defer machine.close()
	if err := os.MkdirAll(settings.Images.Files, 0o700); err != nil {
		return attack.Report{}, err
	}
	machine.bait.Share = cmp.Or(target.Bait.Share, machine.bait.Share)
	target.Server, target.Tier, target.Outside, target.Bait, target.Images = caller, tier, machine, machine.bait, settings.Images.Files
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		target.NoPython = "this machine has no /usr/bin/python3"
	}
	if around == nil && target.NoNetwork == "" {
		target.NoNetwork = "the simulated network is missing"
	}
	return attack.Run(ctx, target, rows, report)
}

// Record returns the part of a report that the server shows in its health.
func Record(report attack.Report) *health.AttackRun {
	all := &health.AttackRun{At: report.At, Isolation: report.Tier, Version: report.Version, Tried: report.Tried, Held: report.Held, Failed: []string{}}
	for _, r := range report.Results {
		if !r.Held && r.Skipped == "" {
			all.Failed = append(all.Failed, r.Name)
		}
	}
	return all
}
