package transport

import (
	"testing"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

func TestExtensionsOfAQuota(t *testing.T) {
	e := runtime.Errorf(runtime.CodeQuotaExceeded, "no")
	e.Exceeded = &runtime.Exceeded{Quota: "runners", Limit: 10, Used: 2, Pending: 8, RetryAfter: 1500 * time.Millisecond}
	got := extensions(e)
	for name, want := range map[string]any{"quota": "runners", "limit": int64(10), "used": int64(2), "pending": int64(8), "retryAfter": int64(2)} {
		if got[name] != want {
			t.Errorf("%s: %v, not %v", name, got[name], want)
		}
	}
	e.Exceeded = &runtime.Exceeded{Quota: "executions"}
	if got := extensions(e); got["pending"] != nil || got["retryAfter"] != nil {
		t.Error(got)
	}
}
