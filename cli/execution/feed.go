package execution

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// typedAhead is the number of pieces that are buffered while the program doesn't read.
const typedAhead = 64

// ctrlC is the byte that a terminal in raw mode sends for Ctrl-C.
const ctrlC = 3

// feed copies standard input to the program until either ends. While the connection is broken,
// Ctrl-C on a terminal can't reach the program: feed then calls interrupt instead.
func (j *Job) feed(ctx context.Context, interrupt func()) {
	pieces := make(chan []byte, typedAhead)
	var failed error // read after pieces is closed
	go j.Terminal.Guard(func() {
		defer close(pieces)
		failed = j.read(ctx, pieces, interrupt)
	})
	offset := int64(0)
	for piece := range pieces {
		if !j.send(ctx, client.WriteStdinInput{Base64: piece, Offset: &offset}) {
			return
		}
		offset += int64(len(piece))
	}
	switch {
	case ctx.Err() != nil:
	case j.Terminal != nil:
		interrupt() // the terminal is gone, and no SIGHUP came
	case errors.Is(failed, io.EOF):
		j.send(ctx, client.WriteStdinInput{Close: new(true), Offset: &offset})
	default:
		j.Report("standard input can't be read: %v", failed)
	}
}

// read passes standard input to pieces, until it ends or ctx is cancelled. It always returns an
// error: io.EOF at the end of the input.
func (j *Job) read(ctx context.Context, pieces chan<- []byte, interrupt func()) error {
	for {
		buffer := make([]byte, 32<<10)
		n, err := j.In.Read(buffer)
		if n > 0 {
			if j.Terminal != nil && j.lost.Load() && bytes.IndexByte(buffer[:n], ctrlC) >= 0 {
				interrupt()
			}
			select {
			case pieces <- buffer[:n]:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if err != nil {
			return err
		}
	}
}

// send sends a piece of standard input. It retries while the program doesn't read or the server is
// unreachable. It returns false when the program no longer accepts input.
func (j *Job) send(ctx context.Context, input client.WriteStdinInput) bool {
	input.ExecutionId = j.Execution
	for {
		_, err := client.WriteStdin(ctx, j.persistent(), input)
		if client.CodeOf(err) == runtime.CodeLimitExceeded {
			continue // the program doesn't read at the moment; the offset makes retrying safe
		}
		return err == nil
	}
}
