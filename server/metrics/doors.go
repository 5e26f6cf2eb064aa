package metrics

import (
	"github.com/rockpool/rockpool/doors"
	"github.com/rockpool/rockpool/runtime/timing"
)

// doorFamilies are the metrics of requests at the doors.
func doorFamilies() []family[[]doors.Count] {
	return []family[[]doors.Count]{
		histograms("door_request_seconds", "Duration of requests at the doors (--doors), to the end of their answers. The status is a class: 2xx, 4xx and so on; 1xx for a WebSocket. A tool of the door mcp is a route too, for example tools/call run_program.", []string{"door", "route", "status"}, func(all []doors.Count, emit emitter[timing.Reading]) {
			for _, c := range all {
				emit(c.Took, c.Door, c.Pattern, c.Class)
			}
		}),
	}
}
