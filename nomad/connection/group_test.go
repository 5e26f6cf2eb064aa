package connection

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestGoroutinesAndCallsEndWithTheirGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g Group
		over := errors.New("over")
		causes := make(chan error, 3)
		work := func(ctx context.Context) {
			<-ctx.Done()
			causes <- context.Cause(ctx)
		}
		stop, ok := g.Go(work)
		if _, also := g.Go(work); !ok || !also {
			t.Fatal("Go on a new group: not ok")
		}
		stop()
		if err := <-causes; !errors.Is(err, context.Canceled) {
			t.Errorf("stopped alone: got %v, want %v", err, context.Canceled)
		}
		call, release := g.Bind(t.Context())
		defer release()
		ended, done := g.Bind(t.Context())
		done()
		g.End(over)
		g.End(errors.New("again"))
		g.Wait()
		if err := <-causes; !errors.Is(err, over) || !errors.Is(context.Cause(call), over) || !errors.Is(g.Cause(), over) {
			t.Errorf("a goroutine ended with %v, a call with %v", err, context.Cause(call))
		}
		if errors.Is(context.Cause(ended), over) || len(g.ends) > 1 {
			t.Errorf("a call that was over: %v; kept: %d", context.Cause(ended), len(g.ends))
		}
		if _, ok := g.Go(work); ok {
			t.Error("Go after End: ok")
		}
		if late, _ := g.Bind(t.Context()); !errors.Is(context.Cause(late), over) {
			t.Errorf("a later call: %v", context.Cause(late))
		}
	})
}
