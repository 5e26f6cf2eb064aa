package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/cli/command"
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
	os.Exit(execute(os.Args[1:], command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}

// execute runs the program and returns its exit code.
func execute(arguments []string, s command.Streams) int {
	return commandline.Execute(&grammar{}, "bench", "Compare servers with the fastest possible way to do the same. Needs root.", arguments, s)
}

type grammar struct {
	Row         []string `placeholder:"NAME" help:"Measure this row only: its name, a part of it, or a pattern such as first-output/*. Can be given more than once."`
	List        bool     `help:"List what each row measures, and its floor."`
	JSON        bool     `name:"json" help:"Print the report as JSON."`
	Rounds      int      `default:"0" placeholder:"N" help:"Rounds of each row, 1 to 1000. (10; with --quick 2)"`
	Cluster     string   `default:"local" enum:"local,nomad" placeholder:"NAME" help:"Where the servers have their runners: local, or nomad for the Nomad of $$NOMAD_ADDR. make bench CLUSTER=nomad starts one. (${default})"`
	Image       string   `placeholder:"NAME" help:"With --cluster nomad: image for runners of the driver docker. It needs sh, echo, true, yes and head."`
	AgentPath   string   `placeholder:"PATH" help:"With --cluster nomad: path of the agent on nodes and in images that already have it."`
	Database    string   `placeholder:"URL" help:"With --cluster nomad: the servers' PostgreSQL. They use it one after the other."`
	Against     string   `placeholder:"go-judge=URL" help:"Measure only the rows run/sustained/*, with a go-judge on this machine as their floor."`
	GVisor      string   `name:"gvisor-runtime" env:"ROCKPOOL_GVISOR_RUNTIME" placeholder:"PATH" complete:"file" help:"Program runsc of gVisor, for the rows gvisor/*. make bench builds one. ($$${env})"`
	Quick       bool     `help:"Do a fifth of the operations, to check that everything works. The figures are not accurate."`
	Profile     string   `placeholder:"DIR" help:"Write a CPU profile of the server for each row, for go tool pprof."`
	Program     string   `default:"bin/rockpool" placeholder:"PATH" complete:"file" help:"The measured program. (${default})"`
	ServeFloors bool     `hidden:""`
}

// Help returns the text of --help below the usage line.
func (grammar) Help() string {
	return `The bench starts its own servers on loopback, in temporary directories. It doesn't use or disturb other servers. It needs root, as a server does, and some minutes for all rows.

Each row takes turns with its floor, which does the same without Rockpool on the same machine. Compare the ratio of their medians, not the times, between machines. The table's columns of CPU time are for one operation: "server CPU"; "inside" for agents and programs in the runners; "other" for everything else on the machine, such as the client and unrelated programs.

    bin/bench --row claim --row first-output

With --cluster nomad, servers on the Nomad of $NOMAD_ADDR (and the other variables NOMAD_...) take turns with that Nomad alone. Its clients must be on this machine, since they fetch the agent from servers on loopback. All that the bench registers in Nomad has names that begin with rockpool-bench-. The bench removes it at the end. A job takes 64 MiB and 10 MHz, and up to 200 of them run concurrently.

With --against go-judge=URL, the rows run/sustained/* take turns with a go-judge, which runs the same programs over its REST API. Start it first, on this machine and without other work:

    go-judge -http-addr 127.0.0.1:5050 -parallelism 8
    bin/bench --against go-judge=http://127.0.0.1:5050

If a row's runners exceed the machine's overcommitted capacity, the row is left out. The table says by how much.

Exit codes: 0 if all rows that fit were measured, even if they missed their goals; 125 if a row failed; 130 after Ctrl-C, with the rows measured before.`
}

// Run measures the rows and prints the report.
func (c *grammar) Run(s command.Streams) error {
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
	// After a signal, even a second one, the bench first ends what it started. That takes 5 s at most.
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
		return command.ExitError(command.CodeInterrupted)
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
		return errors.Join(err, command.ExitError(command.CodeInterrupted))
	}
	if failed := report.Failed(); failed > 0 {
		err = errors.Join(err, fmt.Errorf("%d of %d rows failed", failed, len(report.Rows)))
	}
	return err
}

// peer returns the go-judge of --against, or nil.
func (c *grammar) peer(ctx context.Context) (*judge.Judge, error) {
	if c.Against == "" {
		return nil, nil
	}
	name, url, ok := strings.Cut(c.Against, "=")
	if !ok || name != "go-judge" {
		return nil, &config.Error{Flag: "against", Value: c.Against, Allowed: "go-judge=URL"}
	}
	if c.Cluster == config.ClusterNomad {
		return nil, errors.New("--against needs --cluster local")
	}
	return judge.Open(ctx, url)
}

// nomad returns the Nomad of --cluster nomad, or nil.
func (c *grammar) nomad() (*bed.Nomad, error) {
	if c.Cluster != config.ClusterNomad {
		if c.Image != "" || c.AgentPath != "" || c.Database != "" {
			return nil, errors.New("--image, --agent-path and --database need --cluster nomad")
		}
		return nil, nil
	}
	alone, err := bare.Open(fmt.Sprintf("rockpool-bench-%d", os.Getpid()), c.Image)
	if err != nil {
		return nil, err
	}
	return &bed.Nomad{Nomad: alone, Image: c.Image, AgentPath: c.AgentPath, Database: c.Database}, nil
}
