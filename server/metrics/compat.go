package metrics

import (
	"github.com/rockpool/rockpool/compat"
	"github.com/rockpool/rockpool/runtime/timing"
)

// compatFamilies are the metrics of requests at compatible APIs.
func compatFamilies() []family[[]compat.Count] {
	return []family[[]compat.Count]{
		histograms("compat_request_seconds", "Duration of requests to compatible APIs (--compat), to the end of their answers. The status is a class: 2xx, 4xx and so on; 1xx for a WebSocket. A tool of the API mcp is a route too, for example tools/call run_program.", []string{"api", "route", "status"}, func(all []compat.Count, emit emitter[timing.Reading]) {
			for _, c := range all {
				emit(c.Took, c.API, c.Pattern, c.Class)
			}
		}),
	}
}
