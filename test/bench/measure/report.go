// Package measure takes samples in rounds, summarises them, and makes a report of
// them, as JSON or as a table.
package measure

import (
	"errors"
	"fmt"
	"time"
)

// A Unit is what a row's samples count.
type Unit string

// The units.
const (
	Milliseconds Unit = "ms"
	PerSecond    Unit = "/s"
	MBPerSecond  Unit = "MB/s" // a million bytes
	KiB          Unit = "KiB"
)

// A Report is what one run measured.
type Report struct {
	Machine Machine   `json:"machine"`
	Version string    `json:"version"`
	At      time.Time `json:"at"`
	Rounds  int       `json:"rounds"`
	Quick   bool      `json:"quick"`
	// Interrupted: rows that were asked for are missing.
	Interrupted bool     `json:"interrupted,omitempty"`
	Rows        []Result `json:"rows"`
}

// A Result is what came out of a row.
type Result struct {
	Name     string  `json:"name"`
	What     string  `json:"what"`
	FloorIs  string  `json:"floorIs"`
	Unit     Unit    `json:"unit"`
	Row      Summary `json:"row"`
	Floor    Summary `json:"floor"`
	Ratio    float64 `json:"ratio"`         // of the medians: the row's by the floor's
	Per      string  `json:"per,omitempty"` // what CPU is counted for
	CPU      *CPU    `json:"cpu,omitempty"`
	FloorCPU *CPU    `json:"floorCpu,omitempty"` // all of it is "beside"
	// Latencies of single operations in ms, where Row and Floor are rates; nil: not counted.
	Latency      *Summary  `json:"latency,omitempty"`
	FloorLatency *Summary  `json:"floorLatency,omitempty"`
	ServerMiB    float64   `json:"serverMiB,omitempty"` // the server's peak of resident memory; of several the largest
	Goals        []Verdict `json:"goals,omitempty"`
	Note         string    `json:"note,omitempty"` // where its time went, or what else was counted
	Took         float64   `json:"tookSeconds"`
	Error        string    `json:"error,omitempty"`
	LeftOut      string    `json:"leftOut,omitempty"` // why it doesn't fit the machine, in numbers
}

// CPU is the time that one operation took of the machine's CPUs, in
// milliseconds.
type CPU struct {
	Server float64 `json:"serverMs"`
	Inside float64 `json:"insideMs"` // agents and programs, in the runners; 0 where these aren't the bench's to see
	// What the machine spent beside these two: the client, the kernel's own threads, and programs that have
	// nothing to do with it. So it says something on a machine that nobody else uses. Counted in ticks of 10 ms.
	Beside float64 `json:"besideMs"`
}

// A Goal is what a row is to reach: a bound of one of its figures.
type Goal struct {
	Of      string  `json:"of"` // p50, p99, ratio, or p99 ratio: the row's p99 by the floor's
	AtLeast float64 `json:"atLeast,omitempty"`
	AtMost  float64 `json:"atMost,omitempty"`
}

// A Verdict is a goal, and whether it was reached.
type Verdict struct {
	Goal
	Met bool `json:"met"`
}

func (v Verdict) String() string {
	bound := fmt.Sprintf("%s ≤ %g", v.Of, v.AtMost)
	if v.AtLeast > 0 {
		bound = fmt.Sprintf("%s ≥ %g", v.Of, v.AtLeast)
	}
	if v.Met {
		return bound + ": reached"
	}
	return bound + ": MISSED"
}

// ErrNoFit is why a row is left out: it needs more runners than there is room for, and
// some of them would wait for ever.
var ErrNoFit = errors.New("it doesn't fit this machine")

// Fail notes why there are no figures; nil: there are.
func (r *Result) Fail(err error) {
	switch {
	case err == nil:
	case errors.Is(err, ErrNoFit):
		r.LeftOut = err.Error()
	default:
		r.Error = err.Error()
	}
}

// Take notes what the rounds of a row and of its floor measured.
func (r *Result) Take(ours, floor *Round) {
	r.Row, r.Floor = Summarise(ours.Samples), Summarise(floor.Samples)
	if r.Floor.P50 > 0 {
		r.Ratio = r.Row.P50 / r.Floor.P50
	}
	r.CPU, r.FloorCPU = ours.CPU(), floor.CPU()
	r.Latency, r.FloorLatency = summarised(ours.Latency), summarised(floor.Latency)
}

// Judge notes which goals were reached, if there are figures.
func (r *Result) Judge(goals []Goal) {
	if r.Error != "" || r.LeftOut != "" {
		return
	}
	figures := map[string]float64{"p50": r.Row.P50, "p99": r.Row.P99, "ratio": r.Ratio}
	if r.Floor.P99 > 0 {
		figures["p99 ratio"] = r.Row.P99 / r.Floor.P99
	}
	for _, goal := range goals {
		value, known := figures[goal.Of]
		met := known && (goal.AtLeast == 0 || value >= goal.AtLeast) && (goal.AtMost == 0 || value <= goal.AtMost)
		r.Goals = append(r.Goals, Verdict{goal, met})
	}
}

// Failed returns how many rows could not be measured, of those that fit the machine.
func (r Report) Failed() int {
	failed := 0
	for _, row := range r.Rows {
		if row.Error != "" {
			failed++
		}
	}
	return failed
}
