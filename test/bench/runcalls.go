package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/rockpool/rockpool/client"
)

const script = "echo hello\n"

func runRows() []Row {
	const floor = "os/exec: the file is written to a new directory, `sh` runs it there, and the directory is removed."
	return []Row{{
		Name:  "run/one-call",
		What:  "A file and a command in one call of `run`, to the end of its output: a runner is claimed, used and released.",
		Floor: floor, Unit: Milliseconds, Per: "run",
		Open: openRun(runOnce),
	}, {
		Name:  "run/four-calls",
		What:  "The same by claimRunner, updateFiles, startExecution, the subscription, and releaseRunner.",
		Floor: floor, Unit: Milliseconds, Per: "run",
		Open: openRun(runInCalls),
	}}
}

func openRun(run func(context.Context, *target, *socket) error) func(context.Context, *bed) (pair, error) {
	return func(ctx context.Context, b *bed) (pair, error) {
		const idle = 2
		s, err := b.serve(ctx, idle, 0)
		if err != nil {
			return pair{}, err
		}
		k, err := s.dial(ctx)
		if err != nil {
			return pair{}, err
		}
		b.onClose(func() error { k.close(); return nil })
		dir, err := b.directory()
		if err != nil {
			return pair{}, err
		}
		n := b.ops(10)
		row := func(ctx context.Context, r *round) error {
			return repeat(n, func() error {
				if err := r.time(func() error { return run(ctx, s, k) }); err != nil {
					return err
				}
				return s.settle(ctx, idle)
			})
		}
		floor := func(ctx context.Context, r *round) error {
			return repeat(n, func() error { return r.time(func() error { return execScript(ctx, filepath.Join(dir, "one")) }) })
		}
		return pair{row: row, floor: floor}, warm(ctx, row, floor)
	}
}

func runOnce(ctx context.Context, s *target, k *socket) error {
	const mutation = `mutation($in: RunInput!) { run(input: $in) { execution { id } } }`
	in := map[string]any{"environmentId": environment, "waitFor": 60, "command": []string{"sh", "main.sh"}, "files": scriptFile()}
	var out struct {
		Run struct{ Execution struct{ ID string } }
	}
	if err := s.Ask(ctx, mutation, map[string]any{"in": in}, &out); err != nil {
		return err
	}
	return follow(ctx, k, out.Run.Execution.ID)
}

func runInCalls(ctx context.Context, s *target, k *socket) error {
	runner, err := s.claim(ctx)
	if err != nil {
		return err
	}
	if _, err := client.UpdateFiles(ctx, s, client.UpdateFilesInput{RunnerId: runner, Write: scriptFile()}); err != nil {
		return err
	}
	execution, err := s.start(ctx, runner, "sh", "main.sh")
	if err != nil {
		return err
	}
	if err := follow(ctx, k, execution); err != nil {
		return err
	}
	return s.release(ctx, runner)
}

func scriptFile() []client.FileInput { return []client.FileInput{{Path: "main.sh", Text: new(script)}} }

func follow(ctx context.Context, k *socket, execution string) error {
	if err := k.subscribe(ctx, execution); err != nil {
		return err
	}
	if _, err := k.output(ctx); err != nil {
		return err
	}
	return k.drain(ctx, nil)
}

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
