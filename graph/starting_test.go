package graph

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/clustertest"
)

func TestAServerThatStartsTellsItsHealthOnly(t *testing.T) {
	started := make(chan struct{})
	fake := clustertest.NewFake()
	b := newBedWith(t, fake, fake, Options{Started: started})
	if code, _ := b.ask(`{ health { status } version }`, nil, nil); code != nil {
		t.Errorf("health: %v", code)
	}
	answered := make(chan any, 1)
	go func() {
		code, _ := b.ask(`{ environments { id } }`, nil, nil)
		answered <- code
	}()
	select {
	case code := <-answered:
		t.Errorf("answered at once: %v", code)
	case <-time.After(50 * time.Millisecond):
	}
	close(started)
	if code := <-answered; code != nil {
		t.Errorf("after the start: %v", code)
	}
}

func TestWaitingForTheStartHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := starting{make(chan struct{})}.wait(t.Context())
		if err == nil || err.Code != runtime.CodeClusterUnavailable || time.Since(began) != startingPatience {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
	if err := (starting{}).wait(t.Context()); err != nil {
		t.Error(err)
	}
}
