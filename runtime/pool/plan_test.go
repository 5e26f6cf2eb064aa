package pool

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func member(id string, state runtime.RunnerState, revision int) Member {
	return Member{ID: runtime.RunnerID(id), State: state, Revision: revision}
}

func TestPlan(t *testing.T) {
	const (
		starting = runtime.RunnerStarting
		idle     = runtime.RunnerIdle
		claimed  = runtime.RunnerClaimed
		stopping = runtime.RunnerStopping
	)
	foreign := func(m Member) Member { m.Foreign = true; return m }
	expires := func(m Member, at time.Time) Member { m.ExpiresAt = at; return m }
	retry := Failures{Count: 2, RetryAt: noon.Add(time.Second)}
	tried := Failures{Count: 2, RetryAt: noon}
	for name, test := range map[string]struct {
		spec     Spec
		have     []Member
		waiting  int
		failures Failures
		want     Actions
	}{
		"empty pool: starts its size":                         {spec: Spec{Size: 3}, want: Actions{Start: 3}},
		"full pool: nothing to do":                            {spec: Spec{Size: 1}, have: []Member{member("a", idle, 0)}},
		"one is starting: starts the rest":                    {spec: Spec{Size: 2}, have: []Member{member("a", starting, 0)}, want: Actions{Start: 1}},
		"one being claimed and a claim waits: starts another": {spec: Spec{}, waiting: 1, have: []Member{member("a", runtime.RunnerClaiming, 0)}, want: Actions{Start: 1}},
		"one being claimed, none waits: nothing to do":        {spec: Spec{Size: 1}, have: []Member{member("a", runtime.RunnerClaiming, 0)}},
		"one being claimed next to an idle one: stops none":   {spec: Spec{Size: 1}, have: []Member{member("a", runtime.RunnerClaiming, 0), member("b", idle, 0)}},
		"one claimed: starts another":                         {spec: Spec{Size: 1}, have: []Member{member("a", claimed, 0)}, want: Actions{Start: 1}},
		"one stopping: starts another":                        {spec: Spec{Size: 1}, have: []Member{member("a", stopping, 0)}, want: Actions{Start: 1}},
		"size 0 and a claim waits: starts one":                {spec: Spec{}, waiting: 1, want: Actions{Start: 1}},
		"claims wait: starts their number more":               {spec: Spec{Size: 2}, waiting: 3, have: []Member{member("a", starting, 0)}, want: Actions{Start: 4}},
		"shrunk, one starting: stops that one":                {spec: Spec{Size: 1}, have: []Member{member("a", idle, 0), member("b", starting, 0)}, want: Actions{Stop: []Stop{{"b", runtime.GoneShrunk}}}},
		"shrunk, all idle: stops the youngest":                {spec: Spec{Size: 1}, have: []Member{member("a", idle, 0), member("b", idle, 0)}, want: Actions{Stop: []Stop{{"b", runtime.GoneShrunk}}}},
		"old revision: idle one is replaced, claimed one stays": {spec: Spec{Size: 1, Revision: 2}, have: []Member{member("a", idle, 1), member("b", claimed, 1)},
			want: Actions{Start: 1, Stop: []Stop{{"a", runtime.GoneReplaced}}}},
		"another tenant's: idle one is replaced, claimed one stays": {spec: Spec{Size: 1, Revision: 2}, have: []Member{foreign(member("a", idle, 3)), foreign(member("b", claimed, 3))},
			want: Actions{Start: 1, Stop: []Stop{{"a", runtime.GoneReplaced}}}},
		"another tenant's and one too many: both are stopped": {spec: Spec{Size: 1}, have: []Member{foreign(member("a", starting, 0)), member("b", idle, 0), member("c", idle, 0)},
			want: Actions{Stop: []Stop{{"a", runtime.GoneReplaced}, {"c", runtime.GoneShrunk}}}},
		"deleted: idle one stops, claimed one stays": {spec: Spec{Size: 2, Deleted: true}, have: []Member{member("a", idle, 0), member("b", claimed, 0)},
			want: Actions{Stop: []Stop{{"a", runtime.GoneEnvironmentDeleted}}}},
		"deleted with claimed ones: claimed one stops": {spec: Spec{Deleted: true, EndClaimed: true}, have: []Member{member("b", claimed, 0)},
			want: Actions{Stop: []Stop{{"b", runtime.GoneEnvironmentDeleted}}}},
		"expired claim: its runner stops":                    {have: []Member{expires(member("a", claimed, 0), noon)}, want: Actions{Stop: []Stop{{"a", runtime.GoneInactivity}}}},
		"claim expires later: plans again then":              {have: []Member{expires(member("a", claimed, 0), noon.Add(time.Minute))}, want: Actions{WakeAt: noon.Add(time.Minute)}},
		"starts failed: waits before the next":               {spec: Spec{Size: 3}, failures: retry, want: Actions{WakeAt: noon.Add(time.Second)}},
		"pause after failures is over: starts one":           {spec: Spec{Size: 3}, failures: tried, want: Actions{Start: 1}},
		"pause is over and one is starting: no other starts": {spec: Spec{Size: 3}, failures: tried, have: []Member{member("a", starting, 0)}},
		"starts failed and one too many: stops it":           {spec: Spec{}, failures: retry, have: []Member{member("a", idle, 0)}, want: Actions{Stop: []Stop{{"a", runtime.GoneShrunk}}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Plan(noon, test.spec, test.have, test.waiting, test.failures)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestPlanConverges carries out Plan's actions on random pools. After one round nothing is left to
// do, no claimed runner was removed without a reason, and the pool has its size.
func TestPlanConverges(t *testing.T) {
	states := []runtime.RunnerState{runtime.RunnerStarting, runtime.RunnerIdle, runtime.RunnerClaiming, runtime.RunnerClaimed, runtime.RunnerStopping}
	rapid.Check(t, func(t *rapid.T) {
		spec := Spec{
			Size:       rapid.IntRange(0, 6).Draw(t, "size"),
			Revision:   rapid.IntRange(0, 2).Draw(t, "revision"),
			Deleted:    rapid.Bool().Draw(t, "deleted"),
			EndClaimed: rapid.Bool().Draw(t, "endClaimed"),
		}
		waiting := 0
		if !spec.Deleted {
			waiting = rapid.IntRange(0, 3).Draw(t, "waiting")
		}
		var have []Member
		for i := range rapid.IntRange(0, 10).Draw(t, "n") {
			m := member(fmt.Sprint(i), rapid.SampledFrom(states).Draw(t, "state"), rapid.IntRange(0, spec.Revision).Draw(t, "of"))
			m.Foreign = rapid.Bool().Draw(t, "foreign")
			have = append(have, m)
		}
		actions := Plan(noon, spec, have, waiting, Failures{})
		for _, s := range actions.Stop {
			i := slices.IndexFunc(have, func(m Member) bool { return m.ID == s.ID })
			if state := have[i].State; state == runtime.RunnerClaiming || (state == runtime.RunnerClaimed && !(spec.Deleted && spec.EndClaimed)) {
				t.Fatalf("stops %s runner for %s", state, s.Reason)
			}
			have[i].State = runtime.RunnerStopping
		}
		for i := range actions.Start {
			have = append(have, member(fmt.Sprint("new", i), runtime.RunnerStarting, spec.Revision))
		}
		ready, claiming := 0, 0
		for _, m := range have {
			switch m.State {
			case runtime.RunnerStarting, runtime.RunnerIdle:
				ready++
			case runtime.RunnerClaiming:
				claiming++
			}
		}
		if want := spec.Size + waiting; !spec.Deleted && (ready > want || ready+claiming < want) {
			t.Fatalf("%d idle or starting and %d being claimed, want %d", ready, claiming, want)
		}
		if spec.Deleted && ready != 0 {
			t.Fatalf("%d left in a deleted pool", ready)
		}
		if diff := cmp.Diff(Actions{}, Plan(noon, spec, have, waiting, Failures{})); diff != "" {
			t.Fatalf("not at rest: %s", diff)
		}
	})
}

func TestFailuresBackOff(t *testing.T) {
	var f Failures
	now := noon
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second, time.Minute, time.Minute} {
		f = f.failed(now, "why")
		if got := f.RetryAt.Sub(now); got != want {
			t.Errorf("pause %s, want %s", got, want)
		}
		if same := f.failed(now.Add(want/2), "why"); same != f {
			t.Errorf("a failure of the same time counted: got %+v, want %+v", same, f)
		}
		now = f.RetryAt
	}
}
