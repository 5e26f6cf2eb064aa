package measure

import (
	"time"

	"github.com/rockpool/rockpool/test/bench/usage"
)

// A Round collects samples and, for operations that it times, the CPU time of the servers and of
// their runners.
type Round struct {
	Usage   func() (server, inside time.Duration, ok bool) // CPU time until now; nil means not measured
	Samples []float64
	Latency []float64 // of single operations in ms, if the samples are rates

	operations     float64
	server, inside time.Duration
	machine        time.Duration
	metered        bool // CPU time of the server and of its runners
}

// Add adds a sample that the caller measured.
func (r *Round) Add(sample float64) { r.Samples = append(r.Samples, sample) }

// Took adds the duration of one operation, if the samples are rates.
func (r *Round) Took(took time.Duration) { r.Latency = append(r.Latency, milliseconds(took)) }

// Timed returns the duration of do in milliseconds.
func Timed(do func() error) (float64, error) {
	began := time.Now()
	err := do()
	return milliseconds(time.Since(began)), err
}

func milliseconds(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }

// Time adds the duration of do in milliseconds, as one operation.
func (r *Round) Time(do func() error) error {
	took, err := r.Meter(1, do)
	if err == nil {
		r.Add(milliseconds(took))
	}
	return err
}

// Rate adds the rate per second at which do performed n operations.
func (r *Round) Rate(n float64, do func() error) error {
	return r.Count(func() (float64, error) { return n, do() })
}

// Count adds the rate per second at which do performed operations. do returns their number.
func (r *Round) Count(do func() (n float64, err error)) error {
	n, took, err := r.meter(do)
	if err == nil {
		r.Add(n / took.Seconds())
	}
	return err
}

// Meter adds the CPU time of n operations, and returns their duration.
func (r *Round) Meter(n float64, do func() error) (time.Duration, error) {
	_, took, err := r.meter(func() (float64, error) { return n, do() })
	return took, err
}

// meter calls do and adds the CPU time that passes meanwhile. After an error of do it adds nothing.
func (r *Round) meter(do func() (float64, error)) (n float64, took time.Duration, err error) {
	machine := usage.MachineCPU()
	server, inside, ok := r.used()
	began := time.Now()
	n, err = do()
	took = time.Since(began)
	if err != nil {
		return n, took, err
	}
	r.operations += n
	r.machine += usage.MachineCPU() - machine
	if serverAfter, insideAfter, still := r.used(); ok && still {
		r.metered = true
		r.server += serverAfter - server
		r.inside += insideAfter - inside
	}
	return n, took, nil
}

// used returns what Usage returns; false means the round has none.
func (r *Round) used() (server, inside time.Duration, ok bool) {
	if r.Usage == nil {
		return 0, 0, false
	}
	return r.Usage()
}

// CPU returns the CPU time of one operation, or nil if none was measured.
func (r *Round) CPU() *CPU {
	if r.operations == 0 || !r.metered && r.machine == 0 {
		return nil
	}
	each := func(d time.Duration) float64 { return max(0, milliseconds(d)) / r.operations }
	return &CPU{Server: each(r.server), Inside: each(r.inside), Other: each(r.machine - r.server - r.inside)}
}
