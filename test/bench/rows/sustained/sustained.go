// Package sustained measures steady load with a fresh runner each time. It lasts longer than the
// pool's idle runners, so that it includes making and removing runners.
package sustained

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
)

const (
	clients = 8
	pool    = 8 // the pool's size
)

// load lasts much longer than the pool's first runners.
func load(b *bed.Bed) rows.Load {
	return rows.Load{Clients: clients, Skip: 2 * pool, AtLeast: b.Ops(5 * pool), Lasts: time.Duration(b.Ops(4000)) * time.Millisecond}
}

// Rows returns the rows of fresh runners that are used, made and removed without a pause.
func Rows() []rows.Row {
	var all []rows.Row
	for _, job := range jobs {
		row := rows.Row{
			Name: "run/sustained/" + job.name,
			What: fmt.Sprintf("Runs per second of %s. Each run is an HTTP request in a fresh runner and ends when its outcome is known. %d clients run without a pause, while a pool of %d makes new runners. "+
				"Runs that the pool's first runners served don't count.", job.what, clients, pool),
			Floor: "A small C program that makes the same kind of sandbox with system calls alone, starts the program in it and removes it; two at a time.",
			Unit:  measure.PerSecond, Per: "run", Peer: !job.warm && !job.jobe,
			Open: func(ctx context.Context, b *bed.Bed) (rows.Pair, error) { return openJob(ctx, b, job) },
		}
		if job.goal > 0 {
			row.Goals = []measure.Goal{{Of: "p50", AtLeast: job.goal}}
		}
		all = append(all, row)
	}
	return append(all, making()...)
}

// openJob prepares the row of one job. The pool is full before the measurement.
func openJob(ctx context.Context, b *bed.Bed, j job) (rows.Pair, error) {
	files, err := j.prepare(ctx, b)
	if err != nil {
		return rows.Pair{}, err
	}
	s, err := b.Serve(ctx, 0, 0)
	if err != nil {
		return rows.Pair{}, err
	}
	if j.warm {
		s.Load(runtime.InterpreterPython)
	}
	if err := s.Keep(ctx, pool); err != nil {
		return rows.Pair{}, err
	}
	input := map[string]any{"environmentId": bed.Environment, "waitFor": 60, "command": j.argv, "files": files.input()}
	if j.jobe {
		connections := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: clients}} // one for each client
		b.OnClose(func() error { connections.CloseIdleConnections(); return nil })
		return pairOf(ctx, b, j, files, s, func(ctx context.Context) error { return atJobe(ctx, s, connections) })
	}
	run := func(ctx context.Context) error {
		const mutation = `mutation($in: RunInput!) { run(input: $in) { execution { id } } }`
		var out struct {
			Run struct{ Execution struct{ ID string } }
		}
		if err := s.Do(ctx, mutation, map[string]any{"in": input}, &out); err != nil {
			return err
		}
		return s.Await(ctx, out.Run.Execution.ID)
	}
	if j.warm {
		if err := startsWarm(ctx, s, j.argv); err != nil {
			return rows.Pair{}, err
		}
	}
	return pairOf(ctx, b, j, files, s, run)
}

// pairOf returns the measurement of run, with its floor.
func pairOf(ctx context.Context, b *bed.Bed, j job, files files, s *bed.Server, run func(ctx context.Context) error) (rows.Pair, error) {
	p := rows.Pair{Rounds: 5, Row: func(ctx context.Context, r *measure.Round) error {
		if err := load(b).Measure(ctx, r, run); err != nil {
			return err
		}
		return s.Settle(ctx, pool)
	}}
	var err error
	if b.Peer != nil {
		p.Floor, err = atPeer(ctx, b, j, files)
	} else {
		p.Floor, p.Note, err = freshProgram(ctx, b, j, files)
	}
	if err != nil {
		return rows.Pair{}, err
	}
	return p, rows.Warm(ctx, p.Probes()...)
}

// atJobe runs a job at the server through Jobe's API.
func atJobe(ctx context.Context, s *bed.Server, connections *http.Client) error {
	const job = `{"run_spec": {"language_id": "python3", "sourcecode": "print(1)"}}`
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/jobe/index.php/restapi/runs", strings.NewReader(job))
	if err != nil {
		return err
	}
	answer, err := connections.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && !bytes.Contains(text, []byte(`"outcome":15,`)) {
		err = fmt.Errorf("%s: %.200s", answer.Status, text)
	}
	return err
}

// startsWarm returns an error if a command doesn't start from the interpreter that the runner has
// loaded.
func startsWarm(ctx context.Context, s *bed.Server, argv []string) error {
	runner, err := s.Claim(ctx)
	if err != nil {
		return err
	}
	id, err := s.Start(ctx, runner, argv...)
	if err == nil {
		err = s.Await(ctx, id)
	}
	var out struct {
		Execution struct {
			StartedWarm bool
			ColdReason  string
		}
	}
	if err == nil {
		err = s.Do(ctx, `query($id: ID!) { execution(id: $id) { startedWarm coldReason } }`, map[string]any{"id": id}, &out)
	}
	if err == nil && !out.Execution.StartedWarm {
		err = fmt.Errorf("%q was started cold: %s", argv, out.Execution.ColdReason)
	}
	return errors.Join(err, s.Release(ctx, runner))
}

// atPeer runs the same job at the go-judge.
func atPeer(ctx context.Context, b *bed.Bed, j job, files files) (rows.Probe, error) {
	stored := map[string]string{}
	for name, content := range files {
		id, remove, err := b.Peer.Put(ctx, name, content)
		if err != nil {
			return nil, err
		}
		b.OnClose(remove)
		stored[name] = id
	}
	argv := j.argv
	if strings.HasPrefix(argv[0], "./") {
		argv = append([]string{strings.TrimPrefix(argv[0], "./")}, argv[1:]...) // go-judge searches the working directory
	}
	return func(ctx context.Context, r *measure.Round) error {
		return load(b).Measure(ctx, r, func(ctx context.Context) error { return b.Peer.Run(ctx, argv, stored) })
	}, nil
}
