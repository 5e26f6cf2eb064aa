// Package rows defines a row of the bench: what it measures, its floor, and how they take turns. It
// also has the measurements that several rows share.
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

// A Row is one thing that the bench measures.
type Row struct {
	Name  string
	What  string // one sentence for people
	Floor string // the floor, likewise
	Unit  measure.Unit
	Per   string // the operation that CPU time is counted for: "claim", "MB"
	Goals []measure.Goal

	GVisor bool   // it needs gVisor
	Peer   bool   // a go-judge can be its floor (bed.Config.Peer)
	Driver string // the driver of Nomad that it needs; "" means none
	Open   func(ctx context.Context, b *bed.Bed) (Pair, error)
}

// A Pair is a row and its floor, which take turns. Both have run once before they are measured.
type Pair struct {
	Row, Floor Probe
	Rounds     int           // at most; 0 means as many as requested
	Note       func() string // nil means no note
}

// Probes returns both, or only the row's if it has no floor.
func (p Pair) Probes() []Probe {
	if p.Floor == nil {
		return []Probe{p.Row}
	}
	return []Probe{p.Row, p.Floor}
}

// Against returns the rows that support a peer, with the peer as their floor.
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

// A Probe takes the samples of one round.
type Probe func(ctx context.Context, r *measure.Round) error

// Warm runs each probe once and drops its samples.
func Warm(ctx context.Context, probes ...Probe) error {
	for _, p := range probes {
		if err := p(ctx, &measure.Round{}); err != nil {
			return err
		}
	}
	return nil
}

// Select returns the rows that any of the names selects: a row's own name, else a pattern
// (path.Match), else a part of names.
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

// List writes what each row measures, and its floor.
func List(out io.Writer, rows []Row) error {
	for _, row := range rows {
		if _, err := fmt.Fprintf(out, "%s (%s)\n    %s\n    Floor: %s\n", row.Name, row.Unit, row.What, row.Floor); err != nil {
			return err
		}
	}
	return nil
}
