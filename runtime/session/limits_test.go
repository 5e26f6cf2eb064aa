package session

import (
	"testing"
	"time"
)

func TestReachLate(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	for name, test := range map[string]struct {
		by    time.Time
		reach reach
		late  bool
	}{
		"before the limit: not late":                {now.Add(time.Second), reach{}, false},
		"always reachable: late":                    {ago(time.Second), reach{}, true},
		"unreachable: not late":                     {ago(time.Second), reach{away: ago(time.Minute)}, false},
		"reachable for a moment: not late":          {ago(time.Second), reach{back: ago(AgentLate - time.Second)}, false},
		"reachable for long: late":                  {ago(time.Second), reach{back: ago(AgentLate + time.Second)}, true},
		"unreachable for too long: late":            {ago(agentAway + time.Second), reach{away: ago(time.Second)}, true},
		"unreachable on and off for too long: late": {ago(agentAway + time.Second), reach{back: ago(time.Second)}, true},
	} {
		if got := test.reach.late(test.by, now); got != test.late {
			t.Errorf("%s: late is %t, want %t", name, got, test.late)
		}
	}
}

// TestReachFollowsAttempts checks that only an agent that was unreachable for a while is excused.
func TestReachFollowsAttempts(t *testing.T) {
	began := time.Now()
	at := func(d time.Duration) *attempt {
		a := &attempt{began: began}
		a.dialed.Store(int64(d))
		return a
	}
	for name, test := range map[string]struct {
		attempts   []*attempt
		away, back bool
	}{
		"no attempt: reachable":        {nil, false, false},
		"dialed at once: reachable":    {[]*attempt{at(1)}, false, false},
		"not dialed: unreachable":      {[]*attempt{at(0)}, true, false},
		"dialed soon: reachable":       {[]*attempt{at(0), at(checkEvery / 2)}, false, false},
		"dialed late: reachable again": {[]*attempt{at(0), at(0), at(2 * checkEvery)}, false, true},
	} {
		var r reach
		r.observe(nil)
		for _, a := range test.attempts {
			r.observe(a)
		}
		if r.away.IsZero() == test.away || r.back.IsZero() == test.back {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
