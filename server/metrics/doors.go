package metrics

import (
	"github.com/rockpool/rockpool/doors"
	"github.com/rockpool/rockpool/runtime/timing"
)

// doorFamilies show the requests of other systems' clients.
func doorFamilies() []family[[]doors.Count] {
	return []family[[]doors.Count]{
		histograms("door_request_seconds", "Requests at the doors for other systems, to the end of their answers.", []string{"door", "route", "status"}, func(all []doors.Count, emit emitter[timing.Reading]) {
			for _, c := range all {
				emit(c.Took, c.Door, c.Pattern, c.Class)
			}
		}),
	}
}
