package main

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestMoments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTiming()
		m.begin(atUpload)() // one that is over isn't waited for
		began := time.Now()
		waited := make(chan time.Duration)
		go func() {
			m.await(t.Context(), atUpload, 5*time.Millisecond, time.Minute)
			waited <- time.Since(began)
		}()
		<-time.After(time.Second)
		over := m.begin(atUpload)
		claimed := m.begin(atClaim)
		if all := m.lasting(); !slices.Equal(all, []moment{atClaim, atUpload}) {
			t.Errorf("%v are going on", all)
		}
		if after := <-waited; after != time.Second+5*time.Millisecond {
			t.Errorf("it came after %s", after)
		}
		<-time.After(waits)
		if all := m.lasting(); !slices.Equal(all, []moment{atUpload}) {
			t.Errorf("a claim that waits is being marked: %v", all)
		}
		over()
		claimed()
		if all := m.lasting(); len(all) > 0 {
			t.Errorf("%v are going on", all)
		}
		began = time.Now()
		if m.await(t.Context(), atRelease, 0, time.Second); time.Since(began) != time.Second {
			t.Errorf("none came, after %s", time.Since(began))
		}
	})
}
