package server

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/rockpool/rockpool/config"
)

// TestListenWaitsForAnAddressInUse: a killed server may have left its socket to a child process
// that hasn't executed its program yet.
func TestListenWaitsForAnAddressInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := New(config.Config{Listen: taken.Addr().String()}, zap.NewNop())
		began := time.Now()
		if _, err := server.listen(t.Context()); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), "--listen") || time.Since(began) < listenPatience {
			t.Errorf("after %s: got %v, want %v that names --listen after %s", time.Since(began), err, syscall.EADDRINUSE, listenPatience)
		}
		time.AfterFunc(listenPatience/4, func() { _ = taken.Close() })
		listener, err := server.listen(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		_ = listener.Close()
	})
}
