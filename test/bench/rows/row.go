// Package rows is what a row of the bench is: what it measures, beside which floor,
// and how both take turns; and what several rows do to a server.
package rows

import (
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/test/bench/bed"
	"github.com/rockpool/rockpool/test/bench/measure"
)

// A Row is one thing that is measured.
type Row struct {
	Name  string
	What  string // in one sentence
	Floor string // what stands beside it, likewise
	Unit  measure.Unit
	Per   string // what CPU time is counted for: "claim", "MB"
	Goals []measure.Goal

	GVisor bool   // it needs gVisor
	Peer   bool   // a go-judge can stand beside it (bed.Config.Peer)
	Driver string // of Nomad, without which there is nothing to measure; "": none
	Open   func(ctx context.Context, b *bed.Bed) (Pair, error)
}

// A Pair takes turns. Both have been used once before they are measured.
type Pair struct {
	Row, Floor Probe
	Rounds     int           // at most; 0: as many as asked for
	Note       func() string // nil: there is nothing to note
}

// Probes are both, or the row's alone where there is no floor.
func (p Pair) Probes() []Probe {
	if p.Floor == nil {
		return []Probe{p.Row}
	}
	return []Probe{p.Row, p.Floor}
}

// Against returns the rows beside which a peer can stand, with it as their floor.
func Against(all []Row, peer string) []Row {
	var rows []Row
	for _, row := range all {
		if row.Peer {
			row.Floor = peer
			rows = append(rows, row)
		}
	}
	return rows
}

// A Probe takes one round's samples.
type Probe func(ctx context.Context, r *measure.Round) error

// Warm uses each probe once, and forgets what it took.
func Warm(ctx context.Context, probes ...Probe) error {
	for _, p := range probes {
		if err := p(ctx, &measure.Round{}); err != nil {
			return err
		}
	}
	return nil
}

// Select returns those of all rows that any of the names selects: a row's own
// name, else a pattern (path.Match) or a part of names.
func Select(all []Row, names []string) ([]Row, error) {
	if len(names) == 0 {
		return all, nil
	}
	var rows []Row
	used := make([]bool, len(names))
	for _, row := range all {
		hit := false
		for i, name := range names {
			matched, _ := path.Match(name, row.Name)
			if exact := slices.ContainsFunc(all, func(other Row) bool { return other.Name == name }); !exact {
				matched = matched || strings.Contains(row.Name, name)
			}
			if matched {
				hit, used[i] = true, true
			}
		}
		if hit {
			rows = append(rows, row)
		}
	}
	if i := slices.Index(used, false); i >= 0 {
		return nil, fmt.Errorf("--row is %q, but must be (part of) a row's name, or a pattern of it such as first-output/*: see --list", names[i])
	}
	return rows, nil
}

// List writes what each row measures, and beside what.
func List(out io.Writer, rows []Row) error {
	for _, row := range rows {
		if _, err := fmt.Fprintf(out, "%s (%s)\n    %s\n    Floor: %s\n", row.Name, row.Unit, row.What, row.Floor); err != nil {
			return err
		}
	}
	return nil
}
