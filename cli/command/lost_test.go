package command

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// TestARefusalIsNotALostServer: the server responded, even if the refusal is temporary.
func TestARefusalIsNotALostServer(t *testing.T) {
	full := &client.Error{Message: "full"}
	full.Extensions.Code = runtime.CodeQuotaExceeded
	if err := Lost(client.New(DefaultServer), fmt.Errorf("post: %w", full)); !errors.Is(err, full) || err.Error() != "post: "+full.Error() {
		t.Errorf("got %v, want the refusal alone", err)
	}
	if err := Lost(client.New(DefaultServer), fmt.Errorf("post: %w", syscall.ECONNRESET)); !strings.Contains(err.Error(), DefaultServer) || !strings.HasSuffix(err.Error(), syscall.ECONNRESET.Error()) {
		t.Errorf("got %v, want %s and %v", err, DefaultServer, syscall.ECONNRESET)
	}
}
