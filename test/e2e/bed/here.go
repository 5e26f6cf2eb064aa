package bed

import (
	"context"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/rockpool/rockpool/config"
	"github.com/rockpool/rockpool/server"
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
