package main

import "time"

// A round collects samples and, of what is timed, the CPU time of the servers
// and of what runs in their runners.
type round struct {
	usage   func() (server, inside time.Duration, ok bool) // CPU time until now; nil: nobody's is counted
	samples []float64

	operations     float64
	server, inside time.Duration
	metered        bool
}

// add adds a sample that was taken otherwise.
func (r *round) add(sample float64) { r.samples = append(r.samples, sample) }

// time adds how many milliseconds do took, as one operation.
func (r *round) time(do func() error) error {
	took, err := r.meter(1, do)
	if err == nil {
		r.add(float64(took.Nanoseconds()) / 1e6)
	}
	return err
}

// rate adds how many of n operations do did in a second.
func (r *round) rate(n float64, do func() error) error {
	took, err := r.meter(n, do)
	if err == nil {
		r.add(n / took.Seconds())
	}
	return err
}

// meter counts the CPU time of n operations.
func (r *round) meter(n float64, do func() error) (time.Duration, error) {
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

func (r *round) used() (server, inside time.Duration, ok bool) {
	if r.usage == nil {
		return 0, 0, false
	}
	return r.usage()
}

// cpu returns the CPU time of one operation; nil if none was counted.
func (r *round) cpu() *CPU {
	if r.operations == 0 || !r.metered {
		return nil
	}
	return &CPU{Server: r.server.Seconds() * 1e3 / r.operations, Inside: r.inside.Seconds() * 1e3 / r.operations}
}
