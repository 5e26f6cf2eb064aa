package pool

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/clustertest"
)

func TestAlarmUpdate(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(seconds int) time.Time { return begin.Add(time.Duration(seconds) * time.Second) }
	rule := AlertRule{Threshold: 0.5, Timeout: 10 * time.Second}
	low := alarm{lowSince: at(0), reloadAt: at(10)}
	raised := alarm{lowSince: at(0), raised: at(10), reloadAt: at(20)}
	for _, c := range []struct {
		name       string
		alarm      alarm
		rule       AlertRule
		now        int
		idle, size int
		want       alarm
		reload     bool
		wake       time.Time
	}{
		{"enough: no alarm", alarm{}, rule, 0, 2, 4, alarm{}, false, time.Time{}},
		{"too few now: low", alarm{}, rule, 0, 1, 4, low, false, at(10)},
		{"too few for 9 s: low", low, rule, 9, 1, 4, low, false, at(10)},
		{"enough before the timeout: no alarm", low, rule, 9, 2, 4, alarm{}, false, time.Time{}},
		{"too few for 10 s: raised", low, rule, 10, 0, 4, raised, true, at(20)},
		{"still too few: stays raised", raised, rule, 12, 1, 4, raised, false, at(20)},
		{"too few at the reload: reloads", raised, rule, 21, 0, 4, alarm{lowSince: at(0), raised: at(10), reloadAt: at(31)}, true, at(31)},
		{"enough after an alarm: no alarm", raised, rule, 12, 2, 4, alarm{}, false, time.Time{}},
		{"pool of size 0: no alarm", raised, rule, 12, 0, 0, alarm{}, false, time.Time{}},
		{"no timeout: no alarm", low, AlertRule{Threshold: 1}, 100, 0, 4, alarm{}, false, time.Time{}},
		{"threshold 0: no alarm", low, AlertRule{Timeout: time.Second}, 100, 0, 4, alarm{}, false, time.Time{}},
		{"threshold 1, 3 of 4 idle: low", alarm{}, AlertRule{Threshold: 1, Timeout: 10 * time.Second}, 0, 3, 4, low, false, at(10)},
	} {
		got, reload, wake := c.alarm.update(at(c.now), c.rule, c.idle, c.size)
		if got != c.want || reload != c.reload || !wake.Equal(c.wake) {
			t.Errorf("%s: %+v, reload %v, wake %v", c.name, got, reload, wake)
		}
	}
}

// TestAlarmIsRaisedOnTime checks that an alarm that is updated only when it requests it raises
// the alert at the same moment as one that is updated all the time.
func TestAlarmIsRaisedOnTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rule := AlertRule{Threshold: 0.5, Timeout: time.Duration(rapid.IntRange(1, 20).Draw(t, "timeout")) * time.Second}
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		var often, seldom alarm
		var wake time.Time
		idle := 4
		for range 200 {
			changed := rapid.IntRange(0, 9).Draw(t, "change") == 0
			if changed {
				idle = rapid.IntRange(0, 4).Draw(t, "idle")
			}
			often, _, _ = often.update(now, rule, idle, 4)
			if changed || !wake.IsZero() && !now.Before(wake) {
				seldom, _, wake = seldom.update(now, rule, idle, 4)
			}
			if often != seldom {
				t.Fatalf("%+v, looked at seldom %+v", often, seldom)
			}
			now = now.Add(time.Second)
		}
	})
}

func TestAlertIsRaisedAndResolved(t *testing.T) {
	run(t, 4, func(t *testing.T, b *bed) {
		b.want(t, 4, 0)
		if alert, _ := b.WatchAlert(); alert.State != "" {
			t.Errorf("a full pool: %+v", alert)
		}
		b.fake.OnStart(func(runtime.RunnerID) error { return errors.New("no room") })
		for range 3 {
			b.claim(t, Claim{})
		}
		settle(alertAfter - time.Second)
		if alert, _ := b.WatchAlert(); alert.State != "" {
			t.Errorf("before its time: %+v", alert)
		}
		_, changed := b.WatchAlert()
		low := time.Now()
		<-changed
		alert, _ := b.WatchAlert()
		settle(0)
		if took := time.Since(low); took < time.Second || took > 2*time.Second {
			t.Errorf("raised %v after its time", took-time.Second)
		}
		if !alert.Standing() {
			t.Errorf("changed to %+v", alert)
		}
		alert, _ = b.WatchAlert() // the cluster has been asked meanwhile
		if want := (runtime.PoolAlert{EnvironmentID: "a", State: runtime.PoolAlertRaised, Since: alert.Since, Idle: 1, Size: 4, Threshold: 0.5, Reason: "no room"}); alert != want {
			t.Errorf("%+v, want %+v", alert, want)
		}
		raised := alert.Since
		settle(10 * alertAfter)
		if alert, _ = b.WatchAlert(); alert.State != runtime.PoolAlertRaised || alert.Since != raised {
			t.Errorf("while it stands: %+v", alert)
		}
		b.fake.OnStart(func(runtime.RunnerID) error { return nil })
		settle(2 * time.Minute)
		if alert, _ = b.WatchAlert(); alert.State != runtime.PoolAlertResolved || alert.Idle < 2 || !alert.Since.After(raised) {
			t.Errorf("when runners start again: %+v", alert)
		}
	})
}

// TestAlertListsRunnersAgain checks that an alert makes up for a lost hint.
func TestAlertListsRunnersAgain(t *testing.T) {
	runOver(t, 1, func(fake *clustertest.Fake) { fake.StartDelay(time.Hour) }, func(t *testing.T, b *bed) {
		settle(time.Second)
		seen := map[runtime.PoolAlertState]bool{}
		for range 4 {
			alert, changed := b.WatchAlert()
			seen[alert.State] = true
			<-changed
		}
		if !seen[runtime.PoolAlertReloading] || !seen[runtime.PoolAlertRaised] {
			t.Errorf("seen: %v", seen)
		}
		if err := b.Delete(t.Context(), false); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		if alert, _ := b.WatchAlert(); alert.State != runtime.PoolAlertResolved || !strings.Contains(alert.Reason, "deleted") {
			t.Errorf("got %+v, want RESOLVED by the deletion", alert)
		}
	})
}

func TestStartsAreTimed(t *testing.T) {
	run(t, 3, func(t *testing.T, b *bed) {
		b.want(t, 3, 0)
		if d := b.StartDurations(); d.Count != 3 || d.Min < 10*time.Millisecond || d.Max > 20*time.Millisecond {
			t.Errorf("%+v", d)
		}
	})
}
