package metrics

// placement is what every cluster shows of how runners get their places.
type placement struct {
	placed      int64
	evaluations map[string]int     // that haven't ended, by state
	lacking     map[string]int     // evaluations that wait for room, by dimension
	promised    map[string]float64 // by dimension
}

// placementFamilies show how runners get their places.
func placementFamilies[S any](of func(S) placement) []family[S] {
	return []family[S]{
		counter("scheduler_placed_total", "Runners that got their place.", func(s S) int64 { return of(s).placed }),
		gauges("scheduler_evaluations", "Evaluations that haven't ended, by where they are.", []string{"state"}, func(s S, emit emitter[float64]) {
			for state, n := range of(s).evaluations {
				emit(float64(n), state)
			}
		}),
		gauges("scheduler_blocked_evaluations", "Evaluations that wait for room, by what they lack; one that lacks two things counts twice.", []string{"dimension"}, func(s S, emit emitter[float64]) {
			for dimension, n := range of(s).lacking {
				emit(float64(n), dimension)
			}
		}),
		gauges("scheduler_promised_ratio", "What runners with a place were promised, as a share of all that can be promised.", []string{"dimension"}, func(s S, emit emitter[float64]) {
			for dimension, share := range of(s).promised {
				emit(share, dimension)
			}
		}),
	}
}
