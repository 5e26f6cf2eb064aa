package moment

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestMoments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := NewTiming()
		m.Begin(Upload)() // Await doesn't count one that is over
		began := time.Now()
		waited := make(chan time.Duration)
		go func() {
			m.Await(t.Context(), Upload, 5*time.Millisecond, time.Minute)
			waited <- time.Since(began)
		}()
		<-time.After(time.Second)
		over := m.Begin(Upload)
		claimed := m.Begin(Claim)
		if all := m.Lasting(); !slices.Equal(all, []Moment{Claim, Upload}) {
			t.Errorf("%v are going on", all)
		}
		if after := <-waited; after != time.Second+5*time.Millisecond {
			t.Errorf("Await returned after %s", after)
		}
		<-time.After(waits)
		if all := m.Lasting(); !slices.Equal(all, []Moment{Upload}) {
			t.Errorf("a claim that waits is being marked: %v", all)
		}
		over()
		claimed()
		if all := m.Lasting(); len(all) > 0 {
			t.Errorf("%v are going on", all)
		}
		began = time.Now()
		if m.Await(t.Context(), Release, 0, time.Second); time.Since(began) != time.Second {
			t.Errorf("there was no moment, but Await returned only after %s, want %s", time.Since(began), time.Second)
		}
	})
}
