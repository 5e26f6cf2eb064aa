// Package doctor implements rockpool doctor: it tests what this machine can isolate and gives
// advice about what it can't. It leaves nothing on the machine except the report of the attacks.
package doctor

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/local/uids"
	"github.com/rockpool/rockpool/runtime/health"
)

// A Command is rockpool doctor.
type Command struct {
	Data   string `env:"ROCKPOOL_DATA" placeholder:"DIR" complete:"file" help:"Data directory to check. (that of rockpool serve; $$${env})"`
	Server string `env:"ROCKPOOL_SERVER" placeholder:"URL" help:"URL of the server to check. (the address in the settings, else http://127.0.0.1:8080; $$${env})"`
	Config string `name:"config" env:"ROCKPOOL_CONFIG" placeholder:"FILE" complete:"file" help:"Settings file to use, instead of the one that rockpool serve finds. ($$${env})"`
	JSON   bool   `name:"json" help:"Print the findings as JSON, for scripts."`

	Attack    bool   `help:"Run the attack corpus on this machine, which takes about a minute, and print which attacks were stopped. The server then shows the result in its health."`
	Isolation string `default:"NAMESPACES" enum:"NAMESPACES,GVISOR" placeholder:"TIER" help:"With --attack: isolation tier to attack, NAMESPACES or GVISOR. (${default})"`

	EmptyNetwork bool `name:"apart" hidden:"" help:"Set when doctor starts itself in an empty network namespace."`
}

// Run examines the machine.
func (c *Command) Run(s command.Streams) error {
	ctx, stop := command.Stoppable()
	defer stop()
	var all []health.Finding
	report := func(found ...health.Finding) {
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
		return errors.New("attacks need runners on this machine, but these settings put them on Nomad: give other settings with --config, or --config /dev/null for none")
	}
	if err == nil && served.Cluster == config.ClusterNomad {
		report(listening(ctx, url, c.trust(served), served.Token))
		examineNomad(ctx, served, report)
		return c.conclude(s.Out, all, "This Nomad")
	}
	settings, err := config.Private(c.Config)
	if errors.Is(err, fs.ErrPermission) {
		report(health.Warning("settings", "run this as the user of the server, for example with sudo", "%v", err))
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
	case c.Attack && c.EmptyNetwork:
		return c.runAttacks(ctx, settings, s)
	case c.Attack:
		return c.attackIsolated(ctx, s)
	case c.EmptyNetwork:
		report(c.probeNetwork(ctx, settings)...)
		return c.conclude(s.Out, all, "This machine")
	}
	report(kernel(), clock(), openFiles(), languages())
	report(accounts()...)
	report(disk(settings.Data)...)
	report(listening(ctx, url, c.trust(served), served.Token))
	if uids.Root() {
		report(health.Fine("root", "running as root"))
	} else {
		report(health.Fine("root", "not running as root: testing runners without root; `sudo rockpool doctor` tests those of a server with root"))
	}
	report(kernelParts(ctx, settings.CgroupParent)...)
	accepted := err == nil && served.AcceptMissing
	examineSandbox(ctx, settings, accepted, report)
	noSandbox := func(f health.Finding) bool { return f.Name == sandboxMade && f.Status == health.Fail }
	if uids.Root() && !slices.ContainsFunc(all, noSandbox) { // it would fail for the same reasons
		report(c.examineNetwork(ctx)...)
	}
	if ctx.Err() != nil {
		return command.ExitError(command.CodeInterrupted)
	}
	return c.conclude(s.Out, all, "This machine")
}

// conclude prints the conclusion. It returns exit code 1 if a finding is FAIL.
func (c *Command) conclude(out io.Writer, all []health.Finding, subject string) error {
	count := map[health.Status]int{}
	for _, f := range all {
		count[f.Status]++
	}
	failed := count[health.Fail] > 0
	var err error
	switch {
	case c.JSON:
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(struct {
			OK       bool             `json:"ok"`
			Findings []health.Finding `json:"findings"`
		}{!failed, all})
	case failed:
		_, err = fmt.Fprintf(out, "\n%s can't isolate programs yet: %d of %d findings failed.\n", subject, count[health.Fail], len(all))
	default:
		_, err = fmt.Fprintf(out, "\n%s can isolate programs.\n", subject)
	}
	if err == nil && failed {
		return command.ExitError(1)
	}
	return err
}

func printFinding(out io.Writer, f health.Finding) {
	_, _ = fmt.Fprintf(out, "%-4s  %-14s %s\n", f.Status, f.Name, f.Message)
	if f.Advice != "" {
		_, _ = fmt.Fprintf(out, "%22s-> %s\n", "", strings.ReplaceAll(f.Advice, "\n", "\n"+strings.Repeat(" ", 24)))
	}
}
