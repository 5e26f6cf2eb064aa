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

	"github.com/rockpool/rockpool/cli/command"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/test/commandline"
)

func main() {
	os.Exit(execute(os.Args[1:], command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// execute runs the program and returns its exit code.
func execute(arguments []string, s command.Streams) int {
	return commandline.Execute(&grammar{}, "chaos", "Kill servers repeatedly, and check that they lose nothing. Needs root.", arguments, s)
}

type grammar struct {
	Seed    uint64        `placeholder:"N" help:"Seed of the faults and of the clients' choices. 0: a random one, which is printed."`
	For     time.Duration `default:"2m" placeholder:"DURATION" help:"Time with faults, 10s to 3m. (${default})"`
	Every   time.Duration `default:"1500ms" placeholder:"DURATION" help:"Average time between two faults, 200ms to 1m. (${default})"`
	Clients int           `default:"3" placeholder:"N" help:"Clients that claim and use runners, 1 to 16. (${default})"`
	Nomad   string        `placeholder:"FILE" help:"Run the runners on a Nomad, which is killed, frozen and drained too. FILE is the program that starts that Nomad: bin/nomadtest, built by make chaos CLUSTER=nomad. ()"`
	Servers int           `default:"1" placeholder:"N" help:"Concurrent servers, 1 to 5. More than one need --nomad: the runners are containers on two nodes, and the servers share a PostgreSQL. (${default})"`
	Short   bool          `help:"Don't fail if some parts of the scheduler weren't used, as in a short run. Judge only what must not happen."`
	Program string        `default:"bin/rockpool" placeholder:"PATH" help:"The tested program. (${default})"`
	JSON    bool          `name:"json" help:"Print the report as JSON."`
}

// Help returns the text of --help below the usage line.
func (grammar) Help() string {
	return `Chaos starts a server on loopback, with a data directory in memory that it removes at the end. It kills the server every few seconds, kills agents and sandboxes, and fills the disk. Its clients check by their own records that no output, claim or outcome is lost, repeated or made up. With --nomad, the runners are on a Nomad that chaos starts, and that it kills, freezes and drains as well. Other servers aren't disturbed. Chaos needs root, as a server does.

The report counts what happened, and what must not happen. A line with FAILED has a wrong count.

    bin/chaos --seed 7 --for 30s --short

Exit codes: 0 if every check passed; 125 if one failed, or the run could not be completed; 130 after Ctrl-C.`
}

// Run carries out the run and prints the report.
func (c *grammar) Run(s command.Streams) error {
	switch {
	case c.For < 10*time.Second || c.For > 3*time.Minute:
		return &config.Error{Flag: "for", Value: c.For.String(), Allowed: "10s to 3m"} // the disk's size bounds the time
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
	_, _ = fmt.Fprintf(s.Err, "seed %d: bin/chaos --seed %d --for %s --every %s --clients %d%s repeats these faults\n", c.Seed, c.Seed, c.For, c.Every, c.Clients, where)
	ctx, stop := commandline.UntilSignal()
	defer stop()
	report, err := Run(ctx, Config{
		Program: c.Program, Nomad: c.Nomad, Seed: c.Seed, For: c.For, Every: c.Every, Clients: c.Clients, Servers: c.Servers, Short: c.Short, Progress: s.Err,
	})
	if ctx.Err() != nil {
		return command.ExitError(command.CodeInterrupted)
	}
	if report.Took == 0 {
		return err // the run never began
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
