// Package measure takes samples in rounds, summarises them, and reports them as JSON or as a table.
package measure

import (
	"errors"
	"fmt"
	"time"
)

// A Unit is the unit of a row's samples.
type Unit string

// The units.
const (
	Milliseconds Unit = "ms"
	PerSecond    Unit = "/s"
	MBPerSecond  Unit = "MB/s" // a million bytes
	KiB          Unit = "KiB"
)

// A Report has the results of one run.
type Report struct {
	Machine Machine   `json:"machine"`
	Version string    `json:"version"`
	At      time.Time `json:"at"`
	Rounds  int       `json:"rounds"`
	Quick   bool      `json:"quick"`
	// Interrupted is true if some selected rows are missing.
	Interrupted bool     `json:"interrupted,omitempty"`
	Rows        []Result `json:"rows"`
}

// A Result has the figures of a row and of its floor.
type Result struct {
	Name     string  `json:"name"`
	What     string  `json:"what"`
	FloorIs  string  `json:"floorIs"`
	Unit     Unit    `json:"unit"`
	Row      Summary `json:"row"`
	Floor    Summary `json:"floor"`
	Ratio    float64 `json:"ratio"`         // the row's median divided by the floor's
	Per      string  `json:"per,omitempty"` // the operation that CPU counts
	CPU      *CPU    `json:"cpu,omitempty"`
	FloorCPU *CPU    `json:"floorCpu,omitempty"` // only Other is counted
	// Latencies of single operations in ms, if Row and Floor are rates; nil means not measured.
	Latency      *Summary  `json:"latency,omitempty"`
	FloorLatency *Summary  `json:"floorLatency,omitempty"`
	ServerMiB    float64   `json:"serverMiB,omitempty"` // the server's peak of resident memory; the largest of several servers
	Goals        []Verdict `json:"goals,omitempty"`
	Note         string    `json:"note,omitempty"` // for example the steps of the time, or other counts
	Took         float64   `json:"tookSeconds"`
	Error        string    `json:"error,omitempty"`
	LeftOut      string    `json:"leftOut,omitempty"` // why it doesn't fit the machine, in numbers
}

// CPU is the CPU time of one operation, in milliseconds.
type CPU struct {
	Server float64 `json:"serverMs"`
	Inside float64 `json:"insideMs"` // agents and programs in the runners; 0 if the bench can't measure them
	// Other is the rest of the machine's CPU time: the client, the kernel's own threads, and unrelated
	// programs. It is meaningful only on a machine without other work. It is counted in ticks of 10 ms.
	Other float64 `json:"besideMs"`
}

// A Goal is a bound that a figure of a row should meet.
type Goal struct {
	Of      string  `json:"of"` // p50, p99, ratio, or "p99 ratio": the row's p99 divided by the floor's
	AtLeast float64 `json:"atLeast,omitempty"`
	AtMost  float64 `json:"atMost,omitempty"`
}

// A Verdict says whether a goal was met.
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

// ErrNoFit means that the row needs more runners than fit the machine; some of them would wait
// forever.
var ErrNoFit = errors.New("it doesn't fit this machine")

// Fail records why there are no figures. It ignores nil.
func (r *Result) Fail(err error) {
	switch {
	case err == nil:
	case errors.Is(err, ErrNoFit):
		r.LeftOut = err.Error()
	default:
		r.Error = err.Error()
	}
}

// Take records the rounds of a row and of its floor.
func (r *Result) Take(ours, floor *Round) {
	r.Row, r.Floor = Summarise(ours.Samples), Summarise(floor.Samples)
	if r.Floor.P50 > 0 {
		r.Ratio = r.Row.P50 / r.Floor.P50
	}
	r.CPU, r.FloorCPU = ours.CPU(), floor.CPU()
	r.Latency, r.FloorLatency = summarised(ours.Latency), summarised(floor.Latency)
}

// Judge records which goals were met, if there are figures.
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

// Failed returns how many rows failed. Rows that don't fit the machine don't count.
func (r Report) Failed() int {
	failed := 0
	for _, row := range r.Rows {
		if row.Error != "" {
			failed++
		}
	}
	return failed
}
