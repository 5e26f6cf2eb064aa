package syncs

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestWatchersGetHintsUntilTheirEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Watchers[string]
		w.Send("nobody")
		told := map[string][]string{}
		over := errors.New("over")
		short, end := context.WithCancelCause(t.Context())
		long, endLong := context.WithCancelCause(t.Context())
		ended := make(chan error, 2)
		for name, ctx := range map[string]context.Context{"short": short, "long": long} {
			go func() {
				ended <- w.Watch(ctx, func(id string) { told[name] = append(told[name], id) })
			}()
			synctest.Wait() // one writes the map at a time
		}
		w.Send("a")
		end(over)
		if err := <-ended; !errors.Is(err, over) {
			t.Errorf("got %v, want %v", err, over)
		}
		w.Send("b")
		endLong(over)
		<-ended
		if got := told["short"]; len(got) != 2 || got[0] != "" || got[1] != "a" {
			t.Errorf("until its end it received %q", got)
		}
		if got := told["long"]; len(got) != 3 || got[2] != "b" {
			t.Errorf("the other received %q", got)
		}
	})
}
