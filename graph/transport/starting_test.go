package transport

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/rockpool/rockpool/runtime"
)

func TestRequestsWaitForTheStartForALimitedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over, waited := make(chan struct{}), make(chan error, 1)
		go func() {
			if err := (Starting{over}).Wait(t.Context()); err != nil {
				waited <- err
			}
			close(waited)
		}()
		time.Sleep(startingPatience - 1)
		close(over)
		if err := <-waited; err != nil {
			t.Errorf("just before its end: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		err := Starting{make(chan struct{})}.Wait(t.Context())
		if err == nil || err.Code != runtime.CodeClusterUnavailable || time.Since(began) != startingPatience {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
	if err := (Starting{}).Wait(t.Context()); err != nil {
		t.Error(err)
	}
}
