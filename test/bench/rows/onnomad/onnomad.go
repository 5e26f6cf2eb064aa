// Package onnomad measures a server on Nomad beside that Nomad alone.
package onnomad

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/test/bench/bare"
	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

// agentThere ends the names of rows in which nodes and images have the agent,
// so that Nomad doesn't fetch it.
const agentThere = "/agent-there"

const startedFloor = "Nomad alone: a job that is the same but for the agent, until Nomad's client has started its task, by its own clock."

// Rows returns the rows of a server on Nomad.
func Rows() []rows.Row {
	var all []rows.Row
	for _, driver := range bed.NomadDrivers {
		all = append(all, rows.Row{
			Name: "nomad/start/" + driver, Driver: driver,
			What:  fmt.Sprintf("From the claim at an empty pool until it is answered: a job with the driver %s is registered, placed and started, its agent answers, and the claim is durable.", driver),
			Floor: startedFloor, Unit: measure.Milliseconds, Per: "start",
			Open: openNomadStart(driver),
		})
	}
	for _, driver := range bed.NomadDrivers {
		for _, there := range []bool{false, true} {
			all = append(all, refillRow(driver, there))
		}
	}
	all = append(all, rows.Row{
		Name:  "nomad/claim",
		What:  "A warm runner is claimed through GraphQL over HTTP, while nothing else goes on; the claim is durable in Nomad when it is answered.",
		Floor: "A variable of that size is written to Nomad, on condition that it is as it was.",
		Unit:  measure.Milliseconds, Per: "claim", Goals: []measure.Goal{{Of: "p50", AtMost: 10}},
		Open: openNomadClaim,
	})
	for _, driver := range bed.NomadDrivers {
		what := fmt.Sprintf("From startExecution (POST) of `echo` in a runner of the driver %s to the first output on a WebSocket that is open already", driver)
		floor := "Nomad's own exec of `echo` in a task of that driver, to its first output."
		all = append(all, rows.Row{
			Name: "nomad/first-output/" + driver, What: what + ".", Floor: floor, Unit: measure.Milliseconds, Per: "start", Driver: driver,
			Goals: []measure.Goal{{Of: "p50", AtMost: 5}}, Open: openNomadOutput(driver, 50),
		}, rows.Row{
			Name: "nomad/first-output/" + driver + "/no-agent", What: what + ", without the agent (--nomad-no-agent).", Floor: floor,
			Unit: measure.Milliseconds, Per: "start", Driver: driver, Open: openNomadOutput(driver, 10, "--nomad-no-agent"),
		})
	}
	return append(all, rows.Row{
		Name:  "nomad/true/8",
		What:  "Executions of `true` per second: startExecution, then execution(waitFor), 8 at once, each in a runner of its own.",
		Floor: "Nomad's own exec of `true`, 8 at once in 8 tasks.",
		Unit:  measure.PerSecond, Per: "true", Goals: []measure.Goal{{Of: "p50", AtLeast: 400}},
		Open: openNomadTrue,
	}, rows.Row{
		Name:  "nomad/watch/1",
		What:  "MB/s that one subscription gets, while a program prints as fast as it is taken.",
		Floor: "Nomad's own exec of the same program.",
		Unit:  measure.MBPerSecond, Per: "MB",
		Open: openNomadWatch,
	}, rows.Row{
		Name:  "nomad/recover/200",
		What:  "From the SIGKILL of a server with 150 idle and 50 claimed runners until the next one has all of them and says so through the API.",
		Floor: "The same of a server that has none.",
		Unit:  measure.Milliseconds,
		Open:  openNomadRecover,
	})
}

// Able returns the rows that can be measured here, and tells which can't, and
// why.
func Able(ctx context.Context, n *bed.Nomad, selected []rows.Row, out io.Writer) ([]rows.Row, error) {
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

func refillRow(driver string, there bool) rows.Row {
	row := rows.Row{
		Name: "nomad/refill/" + driver, Driver: driver,
		What:  fmt.Sprintf("Runners made per second, from the wish for 20 until all are idle, with the driver %s; Nomad fetches the agent for each.", driver),
		Floor: "Nomad alone: as many jobs that are the same but for the agent, until its client has started all their tasks.",
		Unit:  measure.PerSecond, Per: "runner", Goals: []measure.Goal{{Of: "p50", AtLeast: 20}},
		Open: openRefill(driver, there),
	}
	if there {
		row.Name += agentThere
		row.What = fmt.Sprintf("The same with the driver %s, where nodes and images have the agent (--nomad-agent-path).", driver)
	}
	return row
}

func openNomadStart(driver string) func(context.Context, *bed.Bed) (rows.Pair, error) {
	return func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
		s, err := b.ServeNomad(ctx, driver, 0)
		if err != nil {
			return rows.Pair{}, err
		}
		var ours, alone steps
		row := func(ctx context.Context, r *measure.Round) error {
			began, runner := time.Now(), ""
			if err := r.Time(func() (err error) { runner, err = s.Claim(ctx); return err }); err != nil {
				return err
			}
			ready := time.Now()
			tasks, err := b.Nomad.Tasks(ctx, s.Prefix+"-runner-"+runner)
			if err == nil {
				err = bed.Until(ctx, func() (bool, error) { // Nomad tells of it a second late
					if len(tasks) == 1 && !tasks[0].Started.IsZero() {
						return true, nil
					}
					tasks, err = b.Nomad.Tasks(ctx, s.Prefix+"-runner-"+runner)
					return false, err
				})
			}
			if err != nil {
				return err
			}
			ours.add(began, tasks[0], ready)
			return s.Release(ctx, runner)
		}
		floor := func(ctx context.Context, r *measure.Round) error {
			began := time.Now()
			tasks, end, err := b.Nomad.Start(ctx, driver, 1)
			if err != nil {
				return errors.Join(err, end(ctx))
			}
			r.Add(milliseconds(tasks[0].Started.Sub(began)))
			alone.add(began, tasks[0], tasks[0].Started)
			return end(ctx)
		}
		note := func() string { return "where it goes: " + ours.String() + "; the floor: " + alone.String() }
		return rows.Pair{Row: row, Floor: floor, Note: note}, rows.Warm(ctx, row, floor)
	}
}

// steps are how long the steps of starts took, in milliseconds.
type steps struct{ placed, received, setup, fetched, driver, answered []float64 }

func (s *steps) add(began time.Time, t bare.Task, ready time.Time) {
	built := t.Started
	if !t.Fetch.IsZero() {
		built = t.Fetch
	}
	s.placed = append(s.placed, milliseconds(t.Placed.Sub(began)))
	s.received = append(s.received, milliseconds(t.Received.Sub(t.Placed)))
	s.setup = append(s.setup, milliseconds(t.Setup.Sub(t.Received)))
	s.fetched = append(s.fetched, milliseconds(built.Sub(t.Setup)))
	s.driver = append(s.driver, milliseconds(t.Started.Sub(built)))
	s.answered = append(s.answered, milliseconds(ready.Sub(t.Started)))
}

// String tells the median of each step.
func (s *steps) String() string {
	p50 := func(samples []float64) string { return measure.Figure(measure.Summarise(slices.Clone(samples)).P50) }
	text := fmt.Sprintf("registered and placed %s, received %s, directory begun %s, ", p50(s.placed), p50(s.received), p50(s.setup))
	if slices.Max(s.driver) > 0 {
		text += fmt.Sprintf("made %s, agent fetched and task started %s", p50(s.fetched), p50(s.driver))
	} else {
		text += fmt.Sprintf("made and task started %s", p50(s.fetched))
	}
	if slices.Max(s.answered) > 0 {
		text += fmt.Sprintf(", agent's answer and claim %s", p50(s.answered))
	}
	return text + " ms"
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

func openRefill(driver string, there bool) func(context.Context, *bed.Bed) (rows.Pair, error) {
	return func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
		var more []string
		if there {
			more = []string{"--nomad-agent-path", b.Nomad.AgentPath}
		}
		s, err := b.ServeNomad(ctx, driver, 0, more...)
		if err != nil {
			return rows.Pair{}, err
		}
		n := b.Ops(20)
		if err := s.Fits(ctx, n); err != nil {
			return rows.Pair{}, err
		}
		row := func(ctx context.Context, r *measure.Round) error {
			if err := r.Rate(float64(n), func() error { return s.Keep(ctx, n) }); err != nil {
				return err
			}
			return s.Keep(ctx, 0)
		}
		floor := func(ctx context.Context, r *measure.Round) error {
			began := time.Now()
			tasks, end, err := b.Nomad.Start(ctx, driver, n)
			if err != nil {
				return errors.Join(err, end(ctx))
			}
			last := began
			for _, t := range tasks {
				if t.Started.After(last) {
					last = t.Started
				}
			}
			r.Add(float64(n) / last.Sub(began).Seconds())
			return end(ctx)
		}
		return rows.Pair{Row: row, Floor: floor, Rounds: 3}, rows.Warm(ctx, row, floor)
	}
}

func openNomadClaim(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
	const idle = 2
	s, err := b.ServeNomad(ctx, "", idle)
	if err != nil {
		return rows.Pair{}, err
	}
	write, err := b.Nomad.Write(ctx)
	if err != nil {
		return rows.Pair{}, err
	}
	b.OnClose(func() error { return b.Nomad.End(context.WithoutCancel(ctx), b.Nomad.Prefix()+"/") })
	n := b.Ops(5)
	row := func(ctx context.Context, r *measure.Round) error { return rows.Claims(ctx, s, r, idle, 1, n) }
	floor := func(ctx context.Context, r *measure.Round) error {
		return rows.Repeat(n, func() error { return r.Time(func() error { return write(ctx) }) })
	}
	return rows.Pair{Row: row, Floor: floor}, rows.Warm(ctx, row, floor)
}

func openNomadOutput(driver string, times int, more ...string) func(context.Context, *bed.Bed) (rows.Pair, error) {
	return func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
		s, err := b.ServeNomad(ctx, driver, 0, more...)
		if err != nil {
			return rows.Pair{}, err
		}
		runner, err := s.Claim(ctx)
		if err != nil {
			return rows.Pair{}, err
		}
		k, err := s.Dial(ctx)
		if err != nil {
			return rows.Pair{}, err
		}
		b.OnClose(func() error { k.Close(); return nil })
		tasks, err := b.Bare(ctx, driver, 1)
		if err != nil {
			return rows.Pair{}, err
		}
		n := b.Ops(times)
		row := func(ctx context.Context, r *measure.Round) error {
			return rows.Repeat(n, func() error { return rows.FirstOutput(ctx, s, k, runner, r) })
		}
		floor := func(ctx context.Context, r *measure.Round) error {
			return rows.Repeat(b.Ops(10), func() error {
				out := &firstWrite{began: time.Now()}
				if err := b.Nomad.Exec(ctx, tasks[0].Allocation, out, "echo", "hello"); err != nil {
					return err
				}
				r.Add(milliseconds(out.after))
				return nil
			})
		}
		return rows.Pair{Row: row, Floor: floor}, rows.Warm(ctx, row, floor)
	}
}

// firstWrite notes when the first output came.
type firstWrite struct {
	began time.Time
	after time.Duration
}

func (w *firstWrite) Write(p []byte) (int, error) {
	if w.after == 0 {
		w.after = time.Since(w.began)
	}
	return len(p), nil
}

func openNomadTrue(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
	const width = 8
	s, err := b.ServeNomad(ctx, "", 0)
	if err != nil {
		return rows.Pair{}, err
	}
	tasks, err := b.Bare(ctx, "", width)
	if err != nil {
		return rows.Pair{}, err
	}
	runners := make([]string, width)
	for i := range runners {
		if runners[i], err = s.Claim(ctx); err != nil {
			return rows.Pair{}, err
		}
	}
	n, fewer := b.Ops(500), b.Ops(50)
	row := func(ctx context.Context, r *measure.Round) error {
		return r.Rate(float64(n), func() error {
			return rows.AtOnce(ctx, width, n, func(ctx context.Context, worker int) error {
				return s.Run(ctx, runners[worker], "true")
			})
		})
	}
	floor := func(ctx context.Context, r *measure.Round) error {
		return r.Rate(float64(fewer), func() error {
			return rows.AtOnce(ctx, width, fewer, func(ctx context.Context, worker int) error {
				return b.Nomad.Exec(ctx, tasks[worker].Allocation, io.Discard, "true")
			})
		})
	}
	return rows.Pair{Row: row, Floor: floor}, rows.Warm(ctx, row, floor)
}

func openNomadWatch(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
	s, err := b.ServeNomad(ctx, "", 0)
	if err != nil {
		return rows.Pair{}, err
	}
	runner, err := s.Claim(ctx)
	if err != nil {
		return rows.Pair{}, err
	}
	tasks, err := b.Bare(ctx, "", 1)
	if err != nil {
		return rows.Pair{}, err
	}
	size := b.Ops(50_000_000)
	printing := fmt.Sprintf("yes %s | head -c %d", strings.Repeat("0123456789", 12), size)
	row := func(ctx context.Context, r *measure.Round) error {
		k, err := s.Dial(ctx)
		if err != nil {
			return err
		}
		defer k.Close()
		return r.Rate(float64(size)/1e6, func() error {
			execution, err := s.Start(ctx, runner, "sh", "-c", printing)
			if err == nil {
				err = k.Subscribe(ctx, execution)
			}
			if err != nil {
				return err
			}
			return k.DrainSize(ctx, size)
		})
	}
	floor := func(ctx context.Context, r *measure.Round) error {
		return r.Rate(float64(size)/1e6, func() error {
			return b.Nomad.Exec(ctx, tasks[0].Allocation, io.Discard, "sh", "-c", printing)
		})
	}
	return rows.Pair{Row: row, Floor: floor, Rounds: 5}, rows.Warm(ctx, row, floor)
}

func openNomadRecover(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
	idle, claimed := b.Ops(150), b.Ops(50)
	counter, err := b.Nomad.Count()
	if err != nil {
		return rows.Pair{}, err
	}
	b.OnClose(counter.Close)
	full, err := b.ServeNomad(ctx, "", idle, "--nomad-address", counter.URL)
	if err != nil {
		return rows.Pair{}, err
	}
	for range claimed {
		if _, err := full.Claim(ctx); err != nil {
			return rows.Pair{}, err
		}
	}
	if err := full.Settle(ctx, idle); err != nil {
		return rows.Pair{}, err
	}
	empty, err := b.ServeNomad(ctx, "", 0)
	if err != nil {
		return rows.Pair{}, err
	}
	var lists []float64
	row := func(ctx context.Context, r *measure.Round) error {
		before := counter.Lists()
		if err := rows.Restart(ctx, full, r, idle, claimed); err != nil {
			return err
		}
		lists = append(lists, float64(counter.Lists()-before))
		return nil
	}
	floor := func(ctx context.Context, r *measure.Round) error { return rows.Restart(ctx, empty, r, 0, 0) }
	note := func() string {
		return fmt.Sprintf("lists that Nomad was asked for until all %d were there: %s at the median", idle+claimed, measure.Figure(measure.Summarise(lists).P50))
	}
	return rows.Pair{Row: row, Floor: floor, Rounds: 5, Note: note}, rows.Warm(ctx, row, floor)
}
