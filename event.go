package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/rockpool/rockpool/runtime"
)

// An executionEvent is what a job asks of each event.
type executionEvent struct {
	Type      string `json:"__typename"`
	Cursor    string
	Stream    string
	Base64    []byte
	Bytes     int64
	Reason    string
	Execution ending
}

func (e *executionEvent) decode(data json.RawMessage) error {
	var out struct{ ExecutionEvents *executionEvent }
	out.ExecutionEvents = e
	if err := json.Unmarshal(data, &out); err != nil {
		return fmt.Errorf("read an event: %w", err)
	}
	return nil
}

// write copies output to the stream that it was printed on, byte for byte.
func (e *executionEvent) write(s streams) error {
	var err error
	switch {
	case e.Type == "ExecutionOutput" && e.Stream == "STDERR":
		_, err = s.err.Write(e.Base64)
	case e.Type == "ExecutionOutput":
		_, err = s.out.Write(e.Base64)
	case e.Type == "ExecutionOutputLost":
		_, err = fmt.Fprintf(s.err, "rockpool: %d bytes of output are missing here: %s\n", e.Bytes, e.Reason)
	}
	return err
}

// feed copies standard input to the program until either ends.
func (j *job) feed(ctx context.Context) {
	buffer := make([]byte, 32<<10)
	offset := int64(0)
	for {
		n, err := j.in.Read(buffer)
		if n > 0 {
			if !j.write(ctx, map[string]any{"base64": buffer[:n], "offset": offset}) {
				return
			}
			offset += int64(n)
		}
		switch {
		case errors.Is(err, io.EOF):
			j.write(ctx, map[string]any{"close": true, "offset": offset})
			return
		case err != nil:
			_, _ = fmt.Fprintf(j.err, "rockpool: standard input can't be read: %v\n", err)
			return
		}
	}
}

// write sends a piece of standard input, and repeats it while the program
// doesn't read or the server can't be reached. It reports false when the
// program takes no more.
func (j *job) write(ctx context.Context, input map[string]any) bool {
	const mutation = `mutation($in: WriteStdinInput!) { writeStdin(input: $in) { offset } }`
	input["executionId"] = j.execution
	for {
		err := persist(ctx, serverPatience, passing, func() error {
			return j.client.ask(ctx, mutation, map[string]any{"in": input}, nil)
		})
		var refused *apiError
		if errors.As(err, &refused) && refused.Extensions.Code == runtime.CodeLimitExceeded {
			continue // the program doesn't read for now; the offset makes this safe
		}
		return err == nil
	}
}
