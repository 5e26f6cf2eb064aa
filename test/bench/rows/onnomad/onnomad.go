// Package onnomad compares a server on Nomad with that Nomad alone.
package onnomad

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

// agentThere is the suffix of rows whose nodes and images already have the agent, so that Nomad
// doesn't fetch it.
const agentThere = "/agent-there"

// startedFloor describes the floor of rows that start one runner.
const startedFloor = "Nomad alone: the same job without the agent, until Nomad's client has started its task, by the client's clock."

// Rows returns the rows of a server on Nomad.
func Rows() []rows.Row {
	var all []rows.Row
	for _, driver := range bed.NomadDrivers {
		all = append(all, rows.Row{
			Name: "nomad/start/" + driver, Driver: driver,
			What:  fmt.Sprintf("From a claim at an empty pool to its answer. A job with the driver %s is registered, placed and started, its agent answers, and the claim is durable.", driver),
			Floor: startedFloor, Unit: measure.Milliseconds, Per: "start",
			Open: openStart(driver),
		})
	}
	for _, driver := range bed.NomadDrivers {
		for _, there := range []bool{false, true} {
			all = append(all, refillRow(driver, there))
		}
	}
	all = append(all, rows.Row{
		Name:  "nomad/claim",
		What:  "The claim of a warm runner through GraphQL over HTTP, without other work. The claim is durable in Nomad when it is answered.",
		Floor: "A compare-and-set write of a variable of that size to Nomad.",
		Unit:  measure.Milliseconds, Per: "claim", Goals: []measure.Goal{{Of: "p50", AtMost: 10}},
		Open: openClaim,
	})
	for _, driver := range bed.NomadDrivers {
		what := fmt.Sprintf("From startExecution (POST) of `echo` in a runner of the driver %s to the first output on an open WebSocket", driver)
		floor := "Nomad's own exec of `echo` in a task of that driver, to its first output."
		all = append(all, rows.Row{
			Name: "nomad/first-output/" + driver, What: what + ".", Floor: floor, Unit: measure.Milliseconds, Per: "start", Driver: driver,
			Goals: []measure.Goal{{Of: "p50", AtMost: 5}}, Open: openOutput(driver),
		})
	}
	return append(all, rows.Row{
		Name:  "nomad/true/8",
		What:  "Executions of `true` per second: startExecution, then execution(waitFor), 8 concurrent, each in a runner of its own.",
		Floor: "Nomad's own exec of `true`, 8 concurrent in 8 tasks.",
		Unit:  measure.PerSecond, Per: "true", Goals: []measure.Goal{{Of: "p50", AtLeast: 400}},
		Open: openTrue,
	}, rows.Row{
		Name:  "nomad/watch/1",
		What:  "MB/s that one subscription receives while a program prints as fast as it can.",
		Floor: "Nomad's own exec of the same program.",
		Unit:  measure.MBPerSecond, Per: "MB",
		Open: openWatch,
	}, rows.Row{
		Name:  "nomad/recover/200",
		What:  "From the SIGKILL of a server with 150 idle and 50 claimed runners until the next one reports all of them through the API.",
		Floor: "The same with a server without runners.",
		Unit:  measure.Milliseconds,
		Open:  openRecover,
	})
}

// Measurable returns the selected rows that this Nomad can run. It writes to out which ones can't be
// measured, and why.
func Measurable(ctx context.Context, n *bed.Nomad, selected []rows.Row, out io.Writer) ([]rows.Row, error) {
	drivers, err := n.Inspect(ctx)
	if err != nil {
		return nil, err
	}
	var all []rows.Row
	for _, row := range selected {
		why := ""
		switch {
		case row.Driver != "" && !slices.Contains(drivers, row.Driver):
			why = "no node has the driver " + row.Driver
		case row.Driver == bed.Docker && n.Image == "":
			why = "--image doesn't say which image"
		case strings.HasSuffix(row.Name, agentThere) && n.AgentPath == "":
			why = "--agent-path doesn't say where nodes and images have the agent"
		}
		if why != "" {
			_, _ = fmt.Fprintf(out, "left out: %s: %s\n", row.Name, why)
			continue
		}
		all = append(all, row)
	}
	return all, nil
}

// refillRow returns the row of filling a pool. there: the nodes have the agent.
func refillRow(driver string, there bool) rows.Row {
	row := rows.Row{
		Name: "nomad/refill/" + driver, Driver: driver,
		What:  fmt.Sprintf("Runners made per second, from the request for 20 until all are idle, with the driver %s. Nomad fetches the agent for each.", driver),
		Floor: "Nomad alone: as many of the same jobs without the agent, until its client has started all tasks.",
		Unit:  measure.PerSecond, Per: "runner", Goals: []measure.Goal{{Of: "p50", AtLeast: 20}},
		Open: openRefill(driver, there),
	}
	if there {
		row.Name += agentThere
		row.What = fmt.Sprintf("The same with the driver %s, where nodes and images have the agent (--nomad-agent-path).", driver)
	}
	return row
}
