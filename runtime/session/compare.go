package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// comparedWithin is how long a comparison may last after the server has begun to stop. The end of an
// execution whose runner is being removed is known only now.
const comparedWithin = 5 * time.Second

// lasting returns a context that ends some time after ctx. Call cancel.
func lasting(ctx context.Context, after time.Duration) (longer context.Context, cancel func()) {
	longer, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if backoff.Sleep(longer, after) == nil {
			end()
		}
	})
	return longer, func() { stop(); end() }
}

// compare compares the output of an execution that passed with the expected output of its case, and
// sets the result. It does so only once. An error says that the expected output can't be read now, or that
// ctx has ended: then the next server compares.
func (s *Session) compare(ctx context.Context, x *runtime.Execution) error {
	if x.Comparison == nil || x.Comparison.Matches != nil || !x.Passed() || x.Batch == nil {
		return nil
	}
	result := *x.Comparison
	difference, lost, err := s.difference(ctx, *x)
	var ofExpected expectedError
	why := ""
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case lost > 0:
		why = fmt.Sprintf("%d bytes of output were lost", lost)
	case errors.Is(err, errNotStored):
		why = errNotStored.Error()
	case errors.As(err, &ofExpected):
		return err
	case err != nil:
		s.record.warn("an output could not be compared", err)
		why = "the output could not be read: the server's log has the reason"
	case difference != nil:
		result.Difference, why = difference, describeDifference(*difference)
	}
	result.Matches = new(why == "")
	if why != "" {
		result.Message = &why
	}
	x.Comparison = &result
	return nil
}

var errNotStored = errors.New("the expected output is no longer stored")

// difference reads the log and the expected output. lost is how many bytes of both streams the log lacks.
func (s *Session) difference(ctx context.Context, x runtime.Execution) (difference *runtime.OutputDifference, lost int64, err error) {
	content, err := s.record.log.Content(ctx, runtime.Stdout)
	if err != nil {
		return nil, 0, err
	}
	defer content.Close() // it was only read
	if lost := content.Lost() + x.Usage.OutputBytes - content.End(); lost > 0 {
		return nil, lost, nil
	}
	at := int64(0)
	difference, err = compareOutput(*x.Comparison, reading(func(p []byte) (int, error) {
		if at == x.Comparison.Bytes {
			return 0, io.EOF
		}
		n, err := s.host.Store.ExpectedOutput(ctx, *x.Batch, at, p)
		if err == nil && n == 0 {
			err = errNotStored
		}
		at += int64(n)
		return n, err
	}), reading(func(p []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return content.Read(p)
	}))
	return difference, 0, err
}

type reading func(p []byte) (int, error)

// Read implements io.Reader.
func (r reading) Read(p []byte) (int, error) { return r(p) }
