package executions

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
	"github.com/rockpool/rockpool/test/bench/socket"
)

// script is the program of both rows and their floor.
const script = "echo hello\n"

// Calls returns the rows of a complete use of a runner, in one call and in several.
func Calls() []rows.Row {
	const floor = "os/exec: the file is written to a new directory, `sh` runs it there, and the directory is removed."
	return []rows.Row{{
		Name:  "run/one-call",
		What:  "A file and a command in one call of `run`, to the end of its output: a runner is claimed, used and released.",
		Floor: floor, Unit: measure.Milliseconds, Per: "run",
		Open: openRun(runOnce),
	}, {
		Name:  "run/four-calls",
		What:  "The same with claimRunner, updateFiles, startExecution, the subscription, and releaseRunner.",
		Floor: floor, Unit: measure.Milliseconds, Per: "run",
		Open: openRun(runInCalls),
	}}
}

// openRun prepares a row that calls run. The time in which the pool refills isn't measured.
func openRun(run func(context.Context, *bed.Server, *socket.Conn) error) func(context.Context, *bed.Bed) (rows.Pair, error) {
	return func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
		const idle = 2
		s, err := b.Serve(ctx, idle, 0)
		if err != nil {
			return rows.Pair{}, err
		}
		k, err := s.Dial(ctx)
		if err != nil {
			return rows.Pair{}, err
		}
		b.OnClose(func() error { k.Close(); return nil })
		dir, err := b.Directory()
		if err != nil {
			return rows.Pair{}, err
		}
		n := b.Ops(10)
		row := func(ctx context.Context, r *measure.Round) error {
			return rows.Repeat(n, func() error {
				if err := r.Time(func() error { return run(ctx, s, k) }); err != nil {
					return err
				}
				return s.Settle(ctx, idle)
			})
		}
		floor := func(ctx context.Context, r *measure.Round) error {
			return rows.Repeat(n, func() error { return r.Time(func() error { return execScript(ctx, filepath.Join(dir, "one")) }) })
		}
		return rows.Pair{Row: row, Floor: floor}, rows.Warm(ctx, row, floor)
	}
}

// runOnce uses a runner with one mutation. The server releases it.
func runOnce(ctx context.Context, s *bed.Server, k *socket.Conn) error {
	const mutation = `mutation($in: RunInput!) { run(input: $in) { execution { id } } }`
	in := map[string]any{"environmentId": bed.Environment, "waitFor": 60, "command": []string{"sh", "main.sh"}, "files": scriptFile()}
	var out struct {
		Run struct{ Execution struct{ ID string } }
	}
	if err := s.Do(ctx, mutation, map[string]any{"in": in}, &out); err != nil {
		return err
	}
	return follow(ctx, k, out.Run.Execution.ID)
}

// runInCalls uses a runner with one call for each step, and releases it.
func runInCalls(ctx context.Context, s *bed.Server, k *socket.Conn) error {
	runner, err := s.Claim(ctx)
	if err != nil {
		return err
	}
	if _, err := client.UpdateFiles(ctx, s, client.UpdateFilesInput{RunnerId: runner, Write: scriptFile()}); err != nil {
		return err
	}
	execution, err := s.Start(ctx, runner, "sh", "main.sh")
	if err != nil {
		return err
	}
	if err := follow(ctx, k, execution); err != nil {
		return err
	}
	return s.Release(ctx, runner)
}

// scriptFile returns the script as a file of the runner.
func scriptFile() []client.FileInput { return []client.FileInput{{Path: "main.sh", Text: new(script)}} }

// follow subscribes to an execution and reads to its end. An execution without output is an error.
func follow(ctx context.Context, k *socket.Conn, execution string) error {
	if err := k.Subscribe(ctx, execution); err != nil {
		return err
	}
	if _, err := k.Output(ctx); err != nil {
		return err
	}
	return k.Drain(ctx, nil)
}

// execScript runs the script on this machine in a directory that doesn't exist yet, and removes
// that.
func execScript(ctx context.Context, dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "main.sh"), []byte(script), 0o600); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "sh", "main.sh")
	cmd.Dir = dir
	if _, err := cmd.Output(); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
