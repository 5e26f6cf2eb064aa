package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/rockpool/rockpool/cli"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/test/commandline"
)

func main() {
	os.Exit(execute(os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// execute runs the program, and returns its exit code.
func execute(arguments []string, s cli.Streams) int {
	return commandline.Execute(&command{}, "chaos", "Kill a server of its own again and again, and judge that nothing is lost. Needs root.", arguments, s)
}

type command struct {
	Seed    uint64        `placeholder:"N" help:"Seed of the faults and of what clients do; 0: any, which is printed."`
	For     time.Duration `default:"2m" placeholder:"DURATION" help:"How long faults go on, 10s to 3m. (${default})"`
	Every   time.Duration `default:"1500ms" placeholder:"DURATION" help:"Time between two faults on average, 200ms to 1m. (${default})"`
	Clients int           `default:"3" placeholder:"N" help:"Clients that claim and use runners, 1 to 16. (${default})"`
	Nomad   string        `placeholder:"FILE" help:"Have the runners on a Nomad of the run's own, which is killed, frozen and drained too: the program that runs it, bin/nomadtest of make chaos CLUSTER=nomad. ()"`
	Servers int           `default:"1" placeholder:"N" help:"Servers that live at the same time, 1 to 5; with more than one the runners are containers on a Nomad of two nodes, and the servers share a PostgreSQL. (${default})"`
	Short   bool          `help:"Judge only what must not happen: a short run doesn't come by every part of the scheduler."`
	Program string        `default:"bin/rockpool" placeholder:"PATH" help:"The program that serves. (${default})"`
	JSON    bool          `name:"json" help:"Print the report as JSON."`
}

// Help is what --help says beyond the flags.
func (command) Help() string {
	return `Runs a server of its own, on loopback and with a data directory in memory that it removes, kills it every few seconds, kills agents and sandboxes, fills up its disk, and judges by what the clients know themselves that nothing is lost, repeated or made up. No other server is disturbed. Needs root, as serving does. With --nomad the runners are on a Nomad of its own, which is killed, frozen and drained as well.

    bin/chaos --seed 7 --for 30s --short

Exit codes: 0 when all was as it must be; 125 when it wasn't, or nothing could be found out; 130 after Ctrl-C.`
}

// Run lets the storm loose, and prints the report.
func (c *command) Run(s cli.Streams) error {
	switch {
	case c.For < 10*time.Second || c.For > 3*time.Minute:
		return &config.Error{Flag: "for", Value: c.For.String(), Allowed: "10s to 3m"} // the disk has room for so much
	case c.Every < 200*time.Millisecond || c.Every > time.Minute:
		return &config.Error{Flag: "every", Value: c.Every.String(), Allowed: "200ms to 1m"}
	case c.Clients < 1 || c.Clients > 16:
		return &config.Error{Flag: "clients", Value: strconv.Itoa(c.Clients), Allowed: "1 to 16"}
	case c.Servers < 1 || c.Servers > 5:
		return &config.Error{Flag: "servers", Value: strconv.Itoa(c.Servers), Allowed: "1 to 5"}
	case c.Servers > 1 && c.Nomad == "":
		return &config.Error{Flag: "servers", Value: strconv.Itoa(c.Servers), Allowed: "1 without --nomad"}
	case os.Geteuid() != 0:
		return errors.New("chaos starts servers, which need root to isolate programs: run it as root, for example with sudo")
	}
	for c.Seed == 0 {
		c.Seed = rand.Uint64N(1_000_000) //nolint:gosec // no secret
	}
	where := ""
	if c.Nomad != "" {
		where = " --nomad " + c.Nomad
	}
	if c.Servers > 1 {
		where += " --servers " + strconv.Itoa(c.Servers)
	}
	_, _ = fmt.Fprintf(s.Err, "seed %d: bin/chaos --seed %d --for %s --every %s --clients %d%s has the same faults\n", c.Seed, c.Seed, c.For, c.Every, c.Clients, where)
	ctx, stop := commandline.UntilSignal()
	defer stop()
	report, err := Run(ctx, Config{
		Program: c.Program, Nomad: c.Nomad, Seed: c.Seed, For: c.For, Every: c.Every, Clients: c.Clients, Servers: c.Servers, Short: c.Short, Progress: s.Err,
	})
	if ctx.Err() != nil {
		return cli.ExitError(cli.CodeInterrupted)
	}
	if report.Took == 0 {
		return err // it never began
	}
	if c.JSON {
		encoder := json.NewEncoder(s.Out)
		encoder.SetIndent("", "  ")
		err = errors.Join(err, encoder.Encode(report))
	} else {
		err = errors.Join(err, report.Table(s.Out))
	}
	if failures := report.Failures(); len(failures) > 0 {
		err = errors.Join(err, fmt.Errorf("with seed %d:\n  %s\nthe servers' log is %s", c.Seed, strings.Join(failures, "\n  "), report.Log))
	}
	return err
}
