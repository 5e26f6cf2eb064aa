package metrics

// placement has the figures about allocations that every cluster has.
type placement struct {
	placed      int64
	evaluations map[string]int     // unfinished ones, by state
	lacking     map[string]int     // blocked evaluations, by exhausted dimension
	promised    map[string]float64 // by dimension
}

// placementFamilies are the metrics of allocations.
func placementFamilies[S any](of func(S) placement) []family[S] {
	return []family[S]{
		counter("scheduler_placed_total", "Runners that got an allocation.", func(s S) int64 { return of(s).placed }),
		gauges("scheduler_evaluations", "Evaluations that haven't ended, by state: READY (for a worker), PENDING (behind another of the same runner), OUTSTANDING (a worker has it), DELAYED, FAILED (will be tried again later), BLOCKED (waits for capacity). On Nomad PENDING and BLOCKED, of runners without an allocation. Alert if FAILED stays above 0, or if READY keeps growing.", []string{"state"}, func(s S, emit emitter[float64]) {
			for state, n := range of(s).evaluations {
				emit(float64(n), state)
			}
		}),
		gauges("scheduler_blocked_evaluations", "BLOCKED evaluations, by the dimension that is exhausted: CPU, MEMORY, PROCESSES or WORKSPACE; on Nomad CPU, MEMORY, DISK, QUOTA or OTHER (a matching node, a port, a device). An evaluation that lacks two dimensions counts in both. Alert if it stays above 0: the machine or the cluster is full.", []string{"dimension"}, func(s S, emit emitter[float64]) {
			for dimension, n := range of(s).lacking {
				emit(float64(n), dimension)
			}
		}),
		gauges("scheduler_promised_ratio", "Share of the capacity that is promised to runners with an allocation; 1 is full. On one machine the capacity includes --cpu-overcommit and --memory-overcommit. On Nomad it is CPU and MEMORY of all nodes, and other jobs don't count.", []string{"dimension"}, func(s S, emit emitter[float64]) {
			for dimension, share := range of(s).promised {
				emit(share, dimension)
			}
		}),
	}
}
