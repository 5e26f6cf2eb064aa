package command

import (
	"errors"
	"fmt"
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
		t.Error(err)
	}
	if err := Lost(client.New(DefaultServer), fmt.Errorf("post: %w", syscall.ECONNRESET)); err.Error() != "lost the connection to the server at http://127.0.0.1:8080: connection reset by peer" {
		t.Error(err)
	}
}
