package bed

import (
	"context"
	"fmt"
	"os"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/server"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/sandboxtest"
)

// ServeHere runs a server in the test's own process, until the returned function is called or the
// test ends.
func ServeHere(t testing.TB, settings config.Config) (Bed, func()) {
	t.Helper()
	if err := settings.Check(); err != nil {
		t.Fatal(err)
	}
	srv := server.New(settings, zaptest.NewLogger(t))
	if err := srv.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	b := Bed{Client: srv.Client(), Address: srv.URL(), Data: settings.Data}
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		end()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
		b.CloseIdle()
	}
	t.Cleanup(stop)
	return b, stop
}

// OpenGVisor starts a server of the test with gVisor. At the test's end it must leave nothing.
func OpenGVisor(t testing.TB) (Bed, *server.Server) {
	t.Helper()
	need.Sandboxes(t)
	groups := fmt.Sprintf("rockpool/e2e-gvisor-%d", os.Getpid())
	settings := Settings(t.TempDir(), Cgroups)
	settings.CgroupParent, settings.AlertThreshold, settings.LogLevel = groups, 0.5, "info"
	settings.Runtimes.GVisor = sandboxtest.GVisor(t)
	if err := settings.Check(); err != nil {
		t.Fatal(err)
	}
	log := new(KeptLog)
	Explain(t, log)
	srv := server.New(settings, log.Logger())
	if err := srv.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	b := Bed{Client: client.New(srv.URL()), Address: srv.URL(), Data: settings.Data, Groups: groups}
	t.Cleanup(func() {
		end()
		err := <-ended
		b.CloseIdle()
		if left := Leftovers(settings.Data, groups); err != nil || len(left) > 0 {
			t.Errorf("the server ended with %v and left %q", err, left)
		}
	})
	t.Cleanup(func() { b.CollectEvents(t) })
	<-srv.Engine.Restored()
	return b, srv
}
