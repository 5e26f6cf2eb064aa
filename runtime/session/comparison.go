package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
)

// tokenBytes bounds the part of a word that is compared together. Longer words are no numbers.
const tokenBytes = 128

// compareOutput returns the first difference between an output and the expected output, or nil if they match.
// It reads both once, in pieces of any size, and holds a fixed amount of memory however long they and their
// lines are. An error of expected is returned as [expectedError].
func compareOutput(how runtime.Comparison, expected, output io.Reader) (*runtime.OutputDifference, error) {
	c := comparison{newComparedText(expected), newComparedText(output)}
	var difference *runtime.OutputDifference
	switch how.Mode {
	case runtime.CompareTokens:
		difference = c.tokens(-1)
	case runtime.CompareNumbers:
		difference = c.tokens(how.Tolerance)
	default:
		difference = c.lines(how.Mode == runtime.CompareTrimmed)
	}
	switch {
	case c.expected.err != nil:
		return nil, expectedError{c.expected.err}
	case c.output.err != nil:
		return nil, c.output.err
	}
	return difference, nil
}

type expectedError struct{ error }

// Unwrap returns the reader's error.
func (e expectedError) Unwrap() error { return e.error }

func describeDifference(d runtime.OutputDifference) string {
	switch {
	case d.Actual == nil:
		return fmt.Sprintf("line %d: %s is missing", d.Line, strconv.Quote(*d.Expected))
	case d.Expected == nil:
		return fmt.Sprintf("line %d: %s is unexpected", d.Line, strconv.Quote(*d.Actual))
	default:
		return fmt.Sprintf("line %d: %s instead of %s", d.Line, strconv.Quote(*d.Actual), strconv.Quote(*d.Expected))
	}
}

type comparison struct{ expected, output *comparedText }

// lines compares line by line. trim ignores white space at line ends and blank lines at the end.
func (c comparison) lines(trim bool) *runtime.OutputDifference {
	e, o := c.expected, c.output
	for {
		left, right := e.peek(), o.peek()
		if len(left) == 0 && len(right) == 0 {
			return nil
		}
		if n := commonPrefix(left, right); n > 0 {
			e.take(n)
			o.take(n)
			continue
		}
		// Two lines with a common beginning and different bytes after it are equal without white space
		// at their ends only if only white space follows in both.
		if !trim || !e.skip(lineSpace) || !o.skip(lineSpace) {
			return c.difference(!trim)
		}
		if e.ended() != o.ended() {
			e.skip(lineSpaces)
			o.skip(lineSpaces)
			if !e.ended() || !o.ended() {
				return c.difference(false)
			}
		}
	}
}

// difference returns the difference between the present lines, with their line ends if wanted.
func (c comparison) difference(lineEnds bool) *runtime.OutputDifference {
	d := &runtime.OutputDifference{Line: max(c.expected.line, c.output.line)}
	if !c.expected.ended() || c.expected.line == d.Line && len(c.expected.before) > 0 {
		d.Expected = new(c.expected.excerpt(lineEnds))
	}
	if !c.output.ended() || c.output.line == d.Line && len(c.output.before) > 0 {
		d.Actual = new(c.output.excerpt(lineEnds))
	}
	return d
}

// tokens compares word by word. Numbers match if they differ by at most the tolerance; less than 0:
// they are compared as words.
func (c comparison) tokens(tolerance float64) *runtime.OutputDifference {
	mark := ""
	for inside := false; ; { // inside: in the middle of a word that is longer than tokenBytes
		if !inside {
			c.expected.skip(wordSpace)
			c.output.skip(wordSpace)
		}
		line := c.output.line
		e, eWhole := c.expected.token()
		o, oWhole := c.output.token()
		if len(e) == 0 && len(o) == 0 && !inside {
			return nil
		}
		if eWhole != oWhole || !bytes.Equal(e, o) && (inside || !eWhole || !numbersMatch(string(e), string(o), tolerance)) {
			d := &runtime.OutputDifference{Line: line}
			if len(e) > 0 || inside {
				d.Expected = new(shorten(mark, e, !eWhole))
			}
			if len(o) > 0 || inside {
				d.Actual = new(shorten(mark, o, !oWhole))
			}
			return d
		}
		inside, mark = !eWhole, ""
		if inside {
			mark = "…"
		}
	}
}

// numbersMatch reports whether two words are decimal numbers that differ by at most the tolerance, absolute
// or relative to the expected number.
func numbersMatch(expected, output string, tolerance float64) bool {
	const digits = "0123456789+-.eE" // neither hexadecimal numbers nor words such as inf
	if tolerance < 0 || strings.Trim(expected, digits) != "" || strings.Trim(output, digits) != "" {
		return false
	}
	e, err := strconv.ParseFloat(expected, 64)
	if err != nil {
		return false
	}
	o, err := strconv.ParseFloat(output, 64)
	return err == nil && math.Abs(e-o) <= tolerance*max(1, math.Abs(e))
}

func commonPrefix(a, b []byte) int {
	n := min(len(a), len(b))
	if bytes.Equal(a[:n], b[:n]) {
		return n
	}
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

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
	difference, err = compareOutput(*x.Comparison, readerFunc(func(p []byte) (int, error) {
		if at == x.Comparison.Bytes {
			return 0, io.EOF
		}
		n, err := s.host.Store.ExpectedOutput(ctx, *x.Batch, at, p)
		if err == nil && n == 0 {
			err = errNotStored
		}
		at += int64(n)
		return n, err
	}), readerFunc(func(p []byte) (int, error) {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		return content.Read(p)
	}))
	return difference, 0, err
}

type readerFunc func(p []byte) (int, error)

// Read implements io.Reader.
func (r readerFunc) Read(p []byte) (int, error) { return r(p) }
