package process

import (
	"errors"
	"testing"
	"time"
)

// A tally is a measurement of kernel memory, and its error.
type tally struct {
	excessive bool
	err       error
}

type (
	connections tally
	locks       tally
)

func (c connections) Excessive() (bool, error) { return c.excessive, c.err }

func (l locks) Excessive(func(int) (bool, error)) (bool, error) { return l.excessive, l.err }

// A failed measurement doesn't count, so the next one doesn't wait.
func TestFailedMeasurementsAreRepeated(t *testing.T) {
	broken := errors.New("it can't be read")
	for name, test := range map[string]struct {
		connections        connections
		locks              locks
		excessive, counted bool
	}{
		"little":                        {counted: true},
		"many connections":              {connections: connections{excessive: true}, excessive: true, counted: true},
		"many locks":                    {locks: locks{excessive: true}, excessive: true, counted: true},
		"unreadable connections":        {connections: connections{err: broken}},
		"unreadable locks":              {locks: locks{err: broken}},
		"unreadable but for many locks": {connections: connections{err: broken}, locks: locks{excessive: true}, excessive: true},
	} {
		p := &process{
			began:   time.Now().Add(-2 * lookWait),
			starter: &Starter{Config: Config{Connections: test.connections, Locks: test.locks}, marking: true},
		}
		if excessive, counted := p.Excessive(), p.measured != (measurement{}); excessive != test.excessive || counted != test.counted {
			t.Errorf("%s: %t, counted %t", name, excessive, counted)
		}
	}
}
