// Package doctor finds out what this machine can isolate, and advises on what it can't. It
// changes nothing that outlives it, but for the report of the attacks.
package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/rockpool/rockpool/cli"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/runtime/finding"
)

// A Command is rockpool doctor.
type Command struct {
	Data   string `env:"ROCKPOOL_DATA" placeholder:"DIR" complete:"file" help:"The data directory to look at. (that of rockpool serve; $$${env})"`
	Server string `env:"ROCKPOOL_SERVER" placeholder:"URL" help:"The server to look for. (where the settings have it listen, http://127.0.0.1:8080 without any; $$${env})"`
	Config string `name:"config" env:"ROCKPOOL_CONFIG" placeholder:"FILE" complete:"file" help:"Settings to take instead of those that rockpool serve finds by itself. ($$${env})"`
	JSON   bool   `name:"json" help:"Print the findings as JSON, for scripts."`

	Attack    bool   `help:"Carry out the whole corpus of attacks here, in about a minute, and print what was held off. The server shows the result in its health."`
	Isolation string `default:"NAMESPACES" enum:"NAMESPACES,GVISOR" placeholder:"TIER" help:"With --attack: the isolation to attack, NAMESPACES or GVISOR. (${default})"`

	Apart bool `hidden:"" help:"What it starts itself with, in an empty network namespace."`
}

// Help is what its --help says beyond the flags.
func (Command) Help() string {
	return `Makes a sandbox as the server does, runs programs in it that look around and overstep their limits, and removes it. Nothing is left behind. Every line is a finding:

    OK    it is as it should be
    WARN  programs can be run; this should be seen to
    FAIL  programs can't be run safely, or not at all; below it is what to do

Where the settings name a Nomad (--cluster nomad), it looks there instead, and changes nothing.

    sudo rockpool doctor
    sudo rockpool doctor --json | jq '.findings[] | select(.status != "OK")'

Without root it tries what an ordinary user has for runners, and says what is lost.

With --attack it starts a server of its own, and has hostile programs try in its runners what docs/security.md lists: to escape, to take everything, to be seen by others. Bombs are thrown only inside limits that were read back first. It needs about 1 GiB of memory, and leaves nothing but the report.

    sudo rockpool doctor --attack
    sudo rockpool doctor --attack --json | jq '.results[] | select(.held | not)'

Exit codes: 0 without a FAIL, 1 with one.`
}

// Run examines the machine.
func (c *Command) Run(s cli.Streams) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop)
	var all []finding.Finding
	tell := func(found ...finding.Finding) {
		all = append(all, found...)
		if !c.JSON {
			for _, f := range found {
				printFinding(s.Out, f)
			}
		}
	}
	served, err := config.Read(c.Config, func(*config.Config, func(string) bool) {})
	if err != nil {
		served.Listen = config.Default().Listen
	}
	url := cmp.Or(c.Server, served.LocalURL())
	if err == nil && served.Cluster == config.ClusterNomad && c.Attack {
		return errors.New("attacks are carried out in runners on this machine, and these settings have them on Nomad: name others with --config, or /dev/null for none")
	}
	if err == nil && served.Cluster == config.ClusterNomad {
		tell(listening(ctx, url, c.trust(served), served.Token))
		examineNomad(ctx, served, tell)
		return c.conclude(s.Out, all, "This Nomad")
	}
	settings, err := config.Private(c.Config)
	if errors.Is(err, fs.ErrPermission) {
		tell(finding.Warning("settings", "run this as the server's user, for example with sudo", "%v", err))
		settings, err = config.Private(os.DevNull)
	}
	if err != nil {
		return err
	}
	if c.Data != "" {
		settings.Data = c.Data
		if err := settings.Locate(); err != nil {
			return err
		}
	}
	switch {
	case c.Attack && c.Apart:
		return c.runAttacks(ctx, settings, s)
	case c.Attack:
		return c.attackApart(ctx, s)
	case c.Apart:
		tell(c.probeNetwork(ctx, settings)...)
		return c.conclude(s.Out, all, "This machine")
	}
	tell(kernel(), clock(), openFiles(), languages())
	tell(accounts()...)
	tell(disk(settings.Data)...)
	tell(listening(ctx, url, c.trust(served), served.Token))
	if os.Geteuid() == 0 {
		tell(finding.Fine("root", "this is root"))
	} else {
		tell(finding.Fine("root", "this isn't root: what an ordinary user has for runners is tried; sudo rockpool doctor tries what root has"))
	}
	tell(kernelParts(ctx, settings.CgroupParent)...)
	accepted := err == nil && served.AcceptMissing
	examineSandbox(ctx, settings, accepted, tell)
	noSandbox := func(f finding.Finding) bool { return f.Name == sandboxMade && f.Status == finding.Fail }
	if os.Geteuid() == 0 && !slices.ContainsFunc(all, noSandbox) { // it would fail for the same reasons
		tell(c.examineNetwork(ctx)...)
	}
	if ctx.Err() != nil {
		return cli.ExitError(cli.CodeInterrupted)
	}
	return c.conclude(s.Out, all, "This machine")
}

// conclude says what it comes to.
func (c *Command) conclude(out io.Writer, all []finding.Finding, subject string) error {
	count := map[finding.Status]int{}
	for _, f := range all {
		count[f.Status]++
	}
	failed := count[finding.Fail] > 0
	var err error
	switch {
	case c.JSON:
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(struct {
			OK       bool              `json:"ok"`
			Findings []finding.Finding `json:"findings"`
		}{!failed, all})
	case failed:
		_, err = fmt.Fprintf(out, "\n%s can't isolate programs yet: %d of %d findings failed.\n", subject, count[finding.Fail], len(all))
	default:
		_, err = fmt.Fprintf(out, "\n%s can isolate programs.\n", subject)
	}
	if err == nil && failed {
		return cli.ExitError(1)
	}
	return err
}

// printFinding prints one in a line, and below it what to do.
func printFinding(out io.Writer, f finding.Finding) {
	_, _ = fmt.Fprintf(out, "%-4s  %-14s %s\n", f.Status, f.Name, f.Message)
	if f.Advice != "" {
		_, _ = fmt.Fprintf(out, "%22s-> %s\n", "", strings.ReplaceAll(f.Advice, "\n", "\n"+strings.Repeat(" ", 24)))
	}
}
