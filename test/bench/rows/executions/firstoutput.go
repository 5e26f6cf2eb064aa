// Package executions measures executions: output, input, files, and rates.
package executions

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

	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
	"github.com/rockpool/rockpool/test/bench/rows"
	"github.com/rockpool/rockpool/test/bench/socket"
)

// FirstOutput returns the rows of the time to the first output.
func FirstOutput() []rows.Row {
	const floor = "os/exec: the same program is started without a sandbox, and its output read from a pipe."
	goals := []measure.Goal{{Of: "p50", AtMost: 3}}
	return []rows.Row{{
		Name:  "first-output/websocket",
		What:  "From startExecution (POST) of `echo` to the first output on an open WebSocket.",
		Floor: floor, Unit: measure.Milliseconds, Per: "start", Goals: goals,
		Open: func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
			s, runner, err := b.Claimed(ctx, 1)
			if err != nil {
				return rows.Pair{}, err
			}
			k, err := s.Dial(ctx)
			if err != nil {
				return rows.Pair{}, err
			}
			b.OnClose(func() error { k.Close(); return nil })
			row := func(ctx context.Context, r *measure.Round) error {
				return rows.Repeat(b.Ops(50), func() error { return rows.FirstOutput(ctx, s, k, runner, r) })
			}
			floor := execOutput(b.Ops(50))
			return rows.Pair{Row: row, Floor: floor}, rows.Warm(ctx, row, floor)
		},
	}, {
		Name:  "first-output/sse",
		What:  "From startExecution (POST) of `echo` to the first output as a server-sent event, with one request for each subscription.",
		Floor: floor, Unit: measure.Milliseconds, Per: "start", Goals: goals,
		Open: func(ctx context.Context, b *bed.Bed) (rows.Pair, error) {
			s, runner, err := b.Claimed(ctx, 1)
			if err != nil {
				return rows.Pair{}, err
			}
			row := func(ctx context.Context, r *measure.Round) error {
				return rows.Repeat(b.Ops(50), func() error { return firstEvent(ctx, s, runner, r) })
			}
			floor := execOutput(b.Ops(50))
			return rows.Pair{Row: row, Floor: floor}, rows.Warm(ctx, row, floor)
		},
	}}
}

// firstEvent is [rows.FirstOutput] over server-sent events.
func firstEvent(ctx context.Context, s *bed.Server, runner string, r *measure.Round) error {
	var response *http.Response
	var lines *bufio.Reader
	err := r.Time(func() error {
		execution, err := s.Start(ctx, runner, "echo", "hello")
		if err != nil {
			return err
		}
		body, err := json.Marshal(map[string]any{"query": socket.OutputSubscription, "variables": map[string]any{"id": execution}})
		if err != nil {
			return err
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/graphql", bytes.NewReader(body))
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Accept", "text/event-stream")
		if response, err = http.DefaultClient.Do(request); err != nil { //nolint:bodyclose // closed below, outside of the measured time
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
	_, err = io.Copy(io.Discard, lines) // read to the end, so that the connection is reused
	return err
}

// execOutput is the floor: a program without a sandbox.
func execOutput(times int) rows.Probe {
	return func(ctx context.Context, r *measure.Round) error {
		return rows.Repeat(times, func() error {
			cmd := exec.CommandContext(ctx, "echo", "hello")
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				return err
			}
			err = r.Time(func() error {
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
