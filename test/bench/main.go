package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/cli"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/test/bench/bare"
	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/floors"
	"github.com/rockpool/rockpool/test/bench/judge"
	"github.com/rockpool/rockpool/test/bench/rows"
	"github.com/rockpool/rockpool/test/bench/rows/onnomad"
	"github.com/rockpool/rockpool/test/commandline"
)

func main() {
	os.Exit(execute(os.Args[1:], cli.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// execute runs the program, and returns its exit code.
func execute(arguments []string, s cli.Streams) int {
	return commandline.Execute(&command{}, "bench", "Measure servers of its own beside what they can't be faster than. Needs root.", arguments, s)
}

type command struct {
	Row         []string `placeholder:"NAME" help:"Measure this row only: its name, a part of it, or a pattern such as first-output/*. Can be given more than once."`
	List        bool     `help:"Say what each row measures, and beside what, and end."`
	JSON        bool     `name:"json" help:"Print the report as JSON."`
	Rounds      int      `default:"0" placeholder:"N" help:"Rounds of each row, 1 to 1000. (10; with --quick 2)"`
	Cluster     string   `default:"local" enum:"local,nomad" placeholder:"NAME" help:"Where the servers have their runners: local, or nomad, the one of $$NOMAD_ADDR; make bench CLUSTER=nomad starts one. (${default})"`
	Image       string   `placeholder:"NAME" help:"With --cluster nomad: image of the driver docker's runners; it needs sh, echo, true, yes and head."`
	AgentPath   string   `placeholder:"PATH" help:"With --cluster nomad: where nodes and images have the agent already."`
	Database    string   `placeholder:"URL" help:"With --cluster nomad: the PostgreSQL that the servers have, one after the other."`
	Against     string   `placeholder:"go-judge=URL" help:"Measure the same jobs at a go-judge that runs on this machine, as the floor of the rows run/sustained/*. No other rows are measured."`
	GVisor      string   `name:"gvisor-runtime" env:"ROCKPOOL_GVISOR_RUNTIME" placeholder:"PATH" complete:"file" help:"Program runsc of gVisor, for the rows gvisor/*. make bench builds one. ($$${env})"`
	Quick       bool     `help:"A fifth of the work, to see that it works: the figures say little."`
	Profile     string   `placeholder:"DIR" help:"Write a CPU profile of the server for each row, for go tool pprof."`
	Program     string   `default:"bin/rockpool" placeholder:"PATH" complete:"file" help:"The program that is measured. (${default})"`
	ServeFloors bool     `hidden:""`
}

// Help is what --help says beyond the flags.
func (command) Help() string {
	return `Measures servers of its own, on loopback and with directories that it removes; no other server is asked or disturbed. Needs root, as serving does, and some minutes for all rows.

With --cluster nomad, servers on the Nomad of $NOMAD_ADDR (and the other variables NOMAD_...) take turns with that Nomad alone. Its clients have to be on this machine, since they fetch the agent from servers on loopback. What it registers there has names that begin with rockpool-bench-, and goes at the end; the environments' jobs take 64 MiB and 10 MHz each, and up to 200 of them run at once.

Every row takes turns with its floor: with the same done without Rockpool, in the same run on the same machine. The ratio of their medians is what can be compared between machines. "inside" is the CPU time of what runs in the runners, "beside" what the machine spent beside that and the server: the client, and programs that have nothing to do with it.

    bin/bench --row claim --row first-output

With --against go-judge=URL the rows run/sustained/* take turns with a go-judge instead, which does the same jobs over its REST API. Start it yourself, on this machine and with nothing else to do:

    go-judge -http-addr 127.0.0.1:5050 -parallelism 8
    bin/bench --against go-judge=http://127.0.0.1:5050

A row is left out if its runners exceed the machine's overcommitted capacity. The table says by how much.

Exit codes: 0 when all rows that fit could be measured, whatever came out; 125 when one could not; 130 after Ctrl-C, with the rows that it had by then.`
}

// Run measures, and prints the report.
func (c *command) Run(s cli.Streams) error {
	switch {
	case c.ServeFloors:
		return floors.Serve(s.In, s.Out)
	case c.List:
		if c.Cluster == config.ClusterNomad {
			return rows.List(s.Out, onnomad.Rows())
		}
		return rows.List(s.Out, Rows())
	case c.Rounds < 0 || c.Rounds > 1000:
		return &config.Error{Flag: "rounds", Value: strconv.Itoa(c.Rounds), Allowed: "1 to 1000"}
	case os.Geteuid() != 0:
		return errors.New("the bench starts servers, which need root to isolate programs: run it as root, for example with sudo")
	}
	if c.Profile != "" {
		if err := os.MkdirAll(c.Profile, 0o755); err != nil {
			return err
		}
	}
	// What was started is ended first, also after a second signal: it takes 5 s at most.
	ctx, stop := commandline.UntilSignal()
	defer stop()
	onNomad, err := c.nomad()
	if err != nil {
		return err
	}
	peer, err := c.peer(ctx)
	if err != nil {
		return err
	}
	report, err := Run(ctx, Config{
		Config: bed.Config{Nomad: onNomad, Peer: peer, Program: c.Program, Quick: c.Quick, GVisor: c.GVisor, Profiles: c.Profile, Progress: s.Err},
		Rows:   c.Row, Rounds: c.Rounds,
	})
	interrupted := ctx.Err() != nil
	switch {
	case interrupted && len(report.Rows) == 0:
		return cli.ExitError(cli.CodeInterrupted)
	case err != nil && !interrupted:
		return err
	}
	report.Version = server.Version()
	if c.JSON {
		encoder := json.NewEncoder(s.Out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	} else {
		err = report.Table(s.Out)
	}
	if interrupted {
		return errors.Join(err, cli.ExitError(cli.CodeInterrupted))
	}
	if failed := report.Failed(); failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d rows could not be measured", failed, len(report.Rows)))
	}
	return err
}

// peer returns the go-judge that stands beside the server, or nil.
func (c *command) peer(ctx context.Context) (*judge.Judge, error) {
	if c.Against == "" {
		return nil, nil
	}
	name, url, ok := strings.Cut(c.Against, "=")
	if !ok || name != "go-judge" {
		return nil, &config.Error{Flag: "against", Value: c.Against, Allowed: "go-judge=URL"}
	}
	if c.Cluster == config.ClusterNomad {
		return nil, errors.New("--against is for --cluster local")
	}
	return judge.Open(ctx, url)
}

// nomad returns the Nomad whose servers are measured, or nil.
func (c *command) nomad() (*bed.Nomad, error) {
	if c.Cluster != config.ClusterNomad {
		if c.Image != "" || c.AgentPath != "" || c.Database != "" {
			return nil, errors.New("--image, --agent-path and --database are for --cluster nomad")
		}
		return nil, nil
	}
	alone, err := bare.Open(fmt.Sprintf("rockpool-bench-%d", os.Getpid()), c.Image)
	if err != nil {
		return nil, err
	}
	return &bed.Nomad{Nomad: alone, Image: c.Image, AgentPath: c.AgentPath, Database: c.Database}, nil
}
