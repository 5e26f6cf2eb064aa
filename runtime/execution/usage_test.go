package execution

import (
	"reflect"
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// TestUsageNeverFalls: nothing that was shown is above what is shown next.
func TestUsageNeverFalls(t *testing.T) {
	n := func(n int64) *int64 { return &n }
	const s = time.Second
	for name, test := range map[string]struct{ u, before, want runtime.Usage }{
		"nothing before": {
			u:    runtime.Usage{Wall: s, User: 2 * s, System: s, PeakMemory: 5, PeakProcesses: 1, OutputBytes: 3, BytesRead: n(1)},
			want: runtime.Usage{Wall: s, User: 2 * s, System: s, PeakMemory: 5, PeakProcesses: 1, OutputBytes: 3, BytesRead: n(1)},
		},
		"all above": {
			u:      runtime.Usage{Wall: 2 * s, User: 2 * s, System: 2 * s, PeakMemory: 5, PeakProcesses: 3, OutputBytes: 3, BytesRead: n(4), Memory: 1, Processes: 1},
			before: runtime.Usage{Wall: s, User: s, System: s, PeakMemory: 4, PeakProcesses: 2, OutputBytes: 2, BytesRead: n(3), Memory: 4, Processes: 2},
			want:   runtime.Usage{Wall: 2 * s, User: 2 * s, System: 2 * s, PeakMemory: 5, PeakProcesses: 3, OutputBytes: 3, BytesRead: n(4), Memory: 1, Processes: 1},
		},
		"all below": {
			before: runtime.Usage{Wall: s, User: 2 * s, System: s, PeakMemory: 5, PeakProcesses: 2, OutputBytes: 3, BytesRead: n(1), BytesWritten: n(2), Memory: 5, Processes: 2},
			want:   runtime.Usage{Wall: s, User: 2 * s, System: s, PeakMemory: 5, PeakProcesses: 2, OutputBytes: 3, BytesRead: n(1), BytesWritten: n(2)},
		},
		"the same time, divided anew": {
			u:      runtime.Usage{User: s, System: 3 * s},
			before: runtime.Usage{User: 2 * s, System: s},
			want:   runtime.Usage{User: 2 * s, System: 2 * s},
		},
		"the system's part shrank": {
			u:      runtime.Usage{User: 3 * s, System: s},
			before: runtime.Usage{User: s, System: 2 * s},
			want:   runtime.Usage{User: 3 * s, System: 2 * s},
		},
		"what is held is a peak": {
			u:    runtime.Usage{Memory: 7, PeakMemory: 5, Processes: 2},
			want: runtime.Usage{Memory: 7, PeakMemory: 7, Processes: 2, PeakProcesses: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := AtLeast(test.u, test.before); !reflect.DeepEqual(got, test.want) {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}
