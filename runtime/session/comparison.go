package session

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/rockpool/rockpool/runtime"
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
