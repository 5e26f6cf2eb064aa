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
		"not yet":                       {now.Add(time.Second), reach{}, false},
		"reached all the time":          {ago(time.Second), reach{}, true},
		"out of reach":                  {ago(time.Second), reach{away: ago(time.Minute)}, false},
		"reached again just now":        {ago(time.Second), reach{back: ago(AgentLate - time.Second)}, false},
		"reached again long ago":        {ago(time.Second), reach{back: ago(AgentLate + time.Second)}, true},
		"out of reach for all that":     {ago(agentAway + time.Second), reach{away: ago(time.Second)}, true},
		"again and again, for all that": {ago(agentAway + time.Second), reach{back: ago(time.Second)}, true},
	} {
		if got := test.reach.late(test.by, now); got != test.late {
			t.Errorf("%s: late is %t", name, got)
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
		"none":                        {nil, false, false},
		"dialed immediately":          {[]*attempt{at(1)}, false, false},
		"not dialed yet":              {[]*attempt{at(0)}, true, false},
		"dialed after a short while":  {[]*attempt{at(0), at(checkEvery / 2)}, false, false},
		"dialed after a longer while": {[]*attempt{at(0), at(0), at(2 * checkEvery)}, false, true},
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
