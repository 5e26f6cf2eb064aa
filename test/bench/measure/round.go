package measure

import "time"

// A Round collects samples and, of what is timed, the CPU time of the servers
// and of what runs in their runners.
type Round struct {
	Usage   func() (server, inside time.Duration, ok bool) // CPU time until now; nil: nobody's is counted
	Samples []float64

	operations     float64
	server, inside time.Duration
	metered        bool
}

// Add adds a sample that was taken otherwise.
func (r *Round) Add(sample float64) { r.Samples = append(r.Samples, sample) }

// Time adds how many milliseconds do took, as one operation.
func (r *Round) Time(do func() error) error {
	took, err := r.Meter(1, do)
	if err == nil {
		r.Add(float64(took.Nanoseconds()) / 1e6)
	}
	return err
}

// Rate adds how many of n operations do did in a second.
func (r *Round) Rate(n float64, do func() error) error {
	took, err := r.Meter(n, do)
	if err == nil {
		r.Add(n / took.Seconds())
	}
	return err
}

// Meter counts the CPU time of n operations.
func (r *Round) Meter(n float64, do func() error) (time.Duration, error) {
	server, inside, ok := r.used()
	began := time.Now()
	err := do()
	took := time.Since(began)
	if err != nil {
		return took, err
	}
	r.operations += n
	if serverAfter, insideAfter, still := r.used(); ok && still {
		r.metered = true
		r.server += serverAfter - server
		r.inside += insideAfter - inside
	}
	return took, nil
}

func (r *Round) used() (server, inside time.Duration, ok bool) {
	if r.Usage == nil {
		return 0, 0, false
	}
	return r.Usage()
}

// CPU returns the CPU time of one operation; nil if none was counted.
func (r *Round) CPU() *CPU {
	if r.operations == 0 || !r.metered {
		return nil
	}
	return &CPU{Server: r.server.Seconds() * 1e3 / r.operations, Inside: r.inside.Seconds() * 1e3 / r.operations}
}
