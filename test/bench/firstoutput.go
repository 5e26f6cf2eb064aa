package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
)

func outputRows() []Row {
	const floor = "os/exec: the same program is started without a sandbox, and its output read from a pipe."
	goals := []Goal{{Of: "p50", AtMost: 3}}
	return []Row{{
		Name:  "first-output/websocket",
		What:  "From startExecution (POST) of `echo` to the first output on a WebSocket that is open already.",
		Floor: floor, Unit: Milliseconds, Per: "start", Goals: goals,
		Open: func(ctx context.Context, b *bed) (pair, error) {
			s, runner, err := b.claimed(ctx, 1)
			if err != nil {
				return pair{}, err
			}
			k, err := s.dial(ctx)
			if err != nil {
				return pair{}, err
			}
			b.onClose(func() error { k.close(); return nil })
			row := func(ctx context.Context, r *round) error {
				return repeat(b.ops(50), func() error { return firstOutput(ctx, s, k, runner, r) })
			}
			floor := execOutput(b.ops(50))
			return pair{row: row, floor: floor}, warm(ctx, row, floor)
		},
	}, {
		Name:  "first-output/sse",
		What:  "The same, with the subscription as server-sent events: a request for each.",
		Floor: floor, Unit: Milliseconds, Per: "start", Goals: goals,
		Open: func(ctx context.Context, b *bed) (pair, error) {
			s, runner, err := b.claimed(ctx, 1)
			if err != nil {
				return pair{}, err
			}
			row := func(ctx context.Context, r *round) error {
				return repeat(b.ops(50), func() error { return firstEvent(ctx, s, runner, r) })
			}
			floor := execOutput(b.ops(50))
			return pair{row: row, floor: floor}, warm(ctx, row, floor)
		},
	}}
}

// firstEvent is firstOutput over server-sent events.
func firstEvent(ctx context.Context, s *target, runner string, r *round) error {
	var response *http.Response
	var lines *bufio.Reader
	err := r.time(func() error {
		execution, err := s.start(ctx, runner, "echo", "hello")
		if err != nil {
			return err
		}
		body, err := json.Marshal(map[string]any{"query": outputSubscription, "variables": map[string]any{"id": execution}})
		if err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/graphql", bytes.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Accept", "text/event-stream")
		if response, err = http.DefaultClient.Do(request); err != nil { //nolint:bodyclose // it is closed below, after what is timed
			return err
		}
		lines = bufio.NewReader(response.Body)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				return fmt.Errorf("no output among the events: %w", err)
			}
			if strings.Contains(line, `"ExecutionOutput"`) {
				return nil
			}
		}
	})
	if response != nil {
		defer response.Body.Close()
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, lines) // to the end, so that the connection is used again
	return err
}

// execOutput is the floor: a program without a sandbox.
func execOutput(times int) probe {
	return func(ctx context.Context, r *round) error {
		return repeat(times, func() error {
			cmd := exec.CommandContext(ctx, "echo", "hello")
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				return err
			}
			err = r.time(func() error {
				if err := cmd.Start(); err != nil {
					return err
				}
				_, err := stdout.Read(make([]byte, 16))
				return err
			})
			return errors.Join(err, cmd.Wait())
		})
	}
}
