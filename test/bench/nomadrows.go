package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rockpool/rockpool/test/bench/bare"
)

// agentThere ends the names of rows in which nodes and images have the agent,
// so that Nomad doesn't fetch it.
const agentThere = "/agent-there"

const startedFloor = "Nomad alone: a job that is the same but for the agent, until Nomad's client has started its task, by its own clock."

// NomadRows returns the rows of a server on Nomad.
func NomadRows() []Row {
	var all []Row
	for _, driver := range nomadDrivers {
		all = append(all, Row{
			Name: "nomad/start/" + driver, Driver: driver,
			What:  fmt.Sprintf("From the claim at an empty pool until it is answered: a job with the driver %s is registered, placed and started, its agent answers, and the claim is durable.", driver),
			Floor: startedFloor, Unit: Milliseconds, Per: "start",
			Open: openNomadStart(driver),
		})
	}
	for _, driver := range nomadDrivers {
		for _, there := range []bool{false, true} {
			all = append(all, refillRow(driver, there))
		}
	}
	all = append(all, Row{
		Name:  "nomad/claim",
		What:  "A warm runner is claimed through GraphQL over HTTP, while nothing else goes on; the claim is durable in Nomad when it is answered.",
		Floor: "A variable of that size is written to Nomad, on condition that it is as it was.",
		Unit:  Milliseconds, Per: "claim", Goals: []Goal{{Of: "p50", AtMost: 10}},
		Open: openNomadClaim,
	})
	for _, driver := range nomadDrivers {
		what := fmt.Sprintf("From startExecution (POST) of `echo` in a runner of the driver %s to the first output on a WebSocket that is open already", driver)
		floor := "Nomad's own exec of `echo` in a task of that driver, to its first output."
		all = append(all, Row{
			Name: "nomad/first-output/" + driver, What: what + ".", Floor: floor, Unit: Milliseconds, Per: "start", Driver: driver,
			Goals: []Goal{{Of: "p50", AtMost: 5}}, Open: openNomadOutput(driver, 50),
		}, Row{
			Name: "nomad/first-output/" + driver + "/no-agent", What: what + ", without the agent (--nomad-no-agent).", Floor: floor,
			Unit: Milliseconds, Per: "start", Driver: driver, Open: openNomadOutput(driver, 10, "--nomad-no-agent"),
		})
	}
	return append(all, Row{
		Name:  "nomad/true/8",
		What:  "Executions of `true` per second: startExecution, then execution(waitFor), 8 at once, each in a runner of its own.",
		Floor: "Nomad's own exec of `true`, 8 at once in 8 tasks.",
		Unit:  PerSecond, Per: "true", Goals: []Goal{{Of: "p50", AtLeast: 400}},
		Open: openNomadTrue,
	}, Row{
		Name:  "nomad/watch/1",
		What:  "MB/s that one subscription gets, while a program prints as fast as it is taken.",
		Floor: "Nomad's own exec of the same program.",
		Unit:  MBPerSecond, Per: "MB",
		Open: openNomadWatch,
	}, Row{
		Name:  "nomad/recover/200",
		What:  "From the SIGKILL of a server with 150 idle and 50 claimed runners until the next one has all of them and says so through the API.",
		Floor: "The same of a server that has none.",
		Unit:  Milliseconds,
		Open:  openNomadRecover,
	})
}

// able returns the rows that can be measured here, and tells which can't, and
// why.
func able(ctx context.Context, n *Nomad, selected []Row, out io.Writer) ([]Row, error) {
	drivers, err := n.inspect(ctx)
	if err != nil {
		return nil, err
	}
	var all []Row
	for _, row := range selected {
		why := ""
		switch {
		case row.Driver != "" && !slices.Contains(drivers, row.Driver):
			why = "no node has the driver " + row.Driver
		case row.Driver == docker && n.Image == "":
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

func refillRow(driver string, there bool) Row {
	row := Row{
		Name: "nomad/refill/" + driver, Driver: driver,
		What:  fmt.Sprintf("Runners made per second, from the wish for 20 until all are idle, with the driver %s; Nomad fetches the agent for each.", driver),
		Floor: "Nomad alone: as many jobs that are the same but for the agent, until its client has started all their tasks.",
		Unit:  PerSecond, Per: "runner", Goals: []Goal{{Of: "p50", AtLeast: 20}},
		Open: openRefill(driver, there),
	}
	if there {
		row.Name += agentThere
		row.What = fmt.Sprintf("The same with the driver %s, where nodes and images have the agent (--nomad-agent-path).", driver)
	}
	return row
}

func openNomadStart(driver string) func(context.Context, *bed) (pair, error) {
	return func(ctx context.Context, b *bed) (pair, error) {
		s, err := b.serveNomad(ctx, driver, 0)
		if err != nil {
			return pair{}, err
		}
		var ours, alone steps
		row := func(ctx context.Context, r *round) error {
			began, runner := time.Now(), ""
			if err := r.time(func() (err error) { runner, err = s.claim(ctx); return err }); err != nil {
				return err
			}
			ready := time.Now()
			tasks, err := b.Nomad.Tasks(ctx, s.prefix+"-runner-"+runner)
			if err == nil {
				err = until(ctx, func() (bool, error) { // Nomad tells of it a second late
					if len(tasks) == 1 && !tasks[0].Started.IsZero() {
						return true, nil
					}
					tasks, err = b.Nomad.Tasks(ctx, s.prefix+"-runner-"+runner)
					return false, err
				})
			}
			if err != nil {
				return err
			}
			ours.add(began, tasks[0], ready)
			return s.release(ctx, runner)
		}
		floor := func(ctx context.Context, r *round) error {
			began := time.Now()
			tasks, end, err := b.Nomad.Start(ctx, driver, 1)
			if err != nil {
				return errors.Join(err, end(ctx))
			}
			r.add(milliseconds(tasks[0].Started.Sub(began)))
			alone.add(began, tasks[0], tasks[0].Started)
			return end(ctx)
		}
		note := func() string { return "where it goes: " + ours.String() + "; the floor: " + alone.String() }
		return pair{row: row, floor: floor, note: note}, warm(ctx, row, floor)
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
	p50 := func(samples []float64) string { return figure(Summarise(slices.Clone(samples)).P50) }
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

func openRefill(driver string, there bool) func(context.Context, *bed) (pair, error) {
	return func(ctx context.Context, b *bed) (pair, error) {
		var more []string
		if there {
			more = []string{"--nomad-agent-path", b.Nomad.AgentPath}
		}
		s, err := b.serveNomad(ctx, driver, 0, more...)
		if err != nil {
			return pair{}, err
		}
		n := b.ops(20)
		if err := s.fits(ctx, n); err != nil {
			return pair{}, err
		}
		row := func(ctx context.Context, r *round) error {
			if err := r.rate(float64(n), func() error { return s.keep(ctx, n) }); err != nil {
				return err
			}
			return s.keep(ctx, 0)
		}
		floor := func(ctx context.Context, r *round) error {
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
			r.add(float64(n) / last.Sub(began).Seconds())
			return end(ctx)
		}
		return pair{row: row, floor: floor, rounds: 3}, warm(ctx, row, floor)
	}
}

func openNomadClaim(ctx context.Context, b *bed) (pair, error) {
	const idle = 2
	s, err := b.serveNomad(ctx, "", idle)
	if err != nil {
		return pair{}, err
	}
	write, err := b.Nomad.Write(ctx)
	if err != nil {
		return pair{}, err
	}
	b.onClose(func() error { return b.Nomad.End(context.WithoutCancel(ctx), b.Nomad.Prefix()+"/") })
	n := b.ops(5)
	row := func(ctx context.Context, r *round) error { return claims(ctx, s, r, idle, 1, n) }
	floor := func(ctx context.Context, r *round) error {
		return repeat(n, func() error { return r.time(func() error { return write(ctx) }) })
	}
	return pair{row: row, floor: floor}, warm(ctx, row, floor)
}

func openNomadOutput(driver string, times int, more ...string) func(context.Context, *bed) (pair, error) {
	return func(ctx context.Context, b *bed) (pair, error) {
		s, err := b.serveNomad(ctx, driver, 0, more...)
		if err != nil {
			return pair{}, err
		}
		runner, err := s.claim(ctx)
		if err != nil {
			return pair{}, err
		}
		k, err := s.dial(ctx)
		if err != nil {
			return pair{}, err
		}
		b.onClose(func() error { k.close(); return nil })
		tasks, err := b.bare(ctx, driver, 1)
		if err != nil {
			return pair{}, err
		}
		n := b.ops(times)
		row := func(ctx context.Context, r *round) error {
			return repeat(n, func() error { return firstOutput(ctx, s, k, runner, r) })
		}
		floor := func(ctx context.Context, r *round) error {
			return repeat(b.ops(10), func() error {
				out := &firstWrite{began: time.Now()}
				if err := b.Nomad.Exec(ctx, tasks[0].Allocation, out, "echo", "hello"); err != nil {
					return err
				}
				r.add(milliseconds(out.after))
				return nil
			})
		}
		return pair{row: row, floor: floor}, warm(ctx, row, floor)
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

func openNomadTrue(ctx context.Context, b *bed) (pair, error) {
	const width = 8
	s, err := b.serveNomad(ctx, "", 0)
	if err != nil {
		return pair{}, err
	}
	tasks, err := b.bare(ctx, "", width)
	if err != nil {
		return pair{}, err
	}
	runners := make([]string, width)
	for i := range runners {
		if runners[i], err = s.claim(ctx); err != nil {
			return pair{}, err
		}
	}
	n, fewer := b.ops(500), b.ops(50)
	row := func(ctx context.Context, r *round) error {
		return r.rate(float64(n), func() error {
			return atOnce(ctx, width, n, func(ctx context.Context, worker int) error {
				return s.run(ctx, runners[worker], "true")
			})
		})
	}
	floor := func(ctx context.Context, r *round) error {
		return r.rate(float64(fewer), func() error {
			return atOnce(ctx, width, fewer, func(ctx context.Context, worker int) error {
				return b.Nomad.Exec(ctx, tasks[worker].Allocation, io.Discard, "true")
			})
		})
	}
	return pair{row: row, floor: floor}, warm(ctx, row, floor)
}

func openNomadWatch(ctx context.Context, b *bed) (pair, error) {
	s, err := b.serveNomad(ctx, "", 0)
	if err != nil {
		return pair{}, err
	}
	runner, err := s.claim(ctx)
	if err != nil {
		return pair{}, err
	}
	tasks, err := b.bare(ctx, "", 1)
	if err != nil {
		return pair{}, err
	}
	size := b.ops(50_000_000)
	printing := fmt.Sprintf("yes %s | head -c %d", strings.Repeat("0123456789", 12), size)
	row := func(ctx context.Context, r *round) error {
		k, err := s.dial(ctx)
		if err != nil {
			return err
		}
		defer k.close()
		return r.rate(float64(size)/1e6, func() error {
			execution, err := s.start(ctx, runner, "sh", "-c", printing)
			if err == nil {
				err = k.subscribe(ctx, execution)
			}
			if err != nil {
				return err
			}
			return k.drainSize(ctx, size)
		})
	}
	floor := func(ctx context.Context, r *round) error {
		return r.rate(float64(size)/1e6, func() error {
			return b.Nomad.Exec(ctx, tasks[0].Allocation, io.Discard, "sh", "-c", printing)
		})
	}
	return pair{row: row, floor: floor, rounds: 5}, warm(ctx, row, floor)
}

func openNomadRecover(ctx context.Context, b *bed) (pair, error) {
	idle, claimed := b.ops(150), b.ops(50)
	counter, err := b.Nomad.Count()
	if err != nil {
		return pair{}, err
	}
	b.onClose(counter.Close)
	full, err := b.serveNomad(ctx, "", idle, "--nomad-address", counter.URL)
	if err != nil {
		return pair{}, err
	}
	for range claimed {
		if _, err := full.claim(ctx); err != nil {
			return pair{}, err
		}
	}
	if err := full.settle(ctx, idle); err != nil {
		return pair{}, err
	}
	empty, err := b.serveNomad(ctx, "", 0)
	if err != nil {
		return pair{}, err
	}
	var lists []float64
	row := func(ctx context.Context, r *round) error {
		before := counter.Lists()
		if err := restarts(ctx, full, r, idle, claimed); err != nil {
			return err
		}
		lists = append(lists, float64(counter.Lists()-before))
		return nil
	}
	floor := func(ctx context.Context, r *round) error { return restarts(ctx, empty, r, 0, 0) }
	note := func() string {
		return fmt.Sprintf("lists that Nomad was asked for until all %d were there: %s at the median", idle+claimed, figure(Summarise(lists).P50))
	}
	return pair{row: row, floor: floor, rounds: 5, note: note}, warm(ctx, row, floor)
}
