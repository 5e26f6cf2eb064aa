package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestALeaseEndsWhenNobodyRenewsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := &leases{byID: map[string]*lease{}}
		began := time.Now()
		lapsed := map[string]time.Duration{}
		for _, id := range []string{"renewed", "forgotten", "ended"} {
			all.grant(id, time.Minute, func() { lapsed[id] = time.Since(began) })
		}
		all.grant("none", 0, func() { t.Error("no lease ended") })
		for range 10 {
			time.Sleep(50 * time.Second)
			if !all.renew("renewed") {
				t.Error("a lease can't be renewed")
			}
			all.end("ended")
		}
		for _, id := range []string{"forgotten", "ended", "none", "unknown"} {
			if all.renew(id) {
				t.Errorf("%s is renewed", id)
			}
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(lapsed) != 2 || lapsed["forgotten"] != time.Minute || lapsed["renewed"] != 560*time.Second || len(all.byID) != 0 {
			t.Error(lapsed, all.byID)
		}
	})
}
