package timing

import (
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

func TestOldDurationsAreForgotten(t *testing.T) {
	var r Recent
	if got := r.Distribution(); got != (runtime.Distribution{}) {
		t.Errorf("of none: %+v", got)
	}
	for i := range 2*kept + 100 {
		r.Add(time.Duration(max(i-kept-100, 0)))
	}
	want := runtime.Distribution{Count: 2*kept + 100, Min: 0, P50: 499, P90: 899, P99: 989, Max: kept - 1}
	if got := r.Distribution(); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
