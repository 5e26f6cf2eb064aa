package connection

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// TestAnAnswerIsNotALostServer: a refusal that passes was answered.
func TestAnAnswerIsNotALostServer(t *testing.T) {
	full := &client.Error{Message: "full"}
	full.Extensions.Code = runtime.CodeQuotaExceeded
	if err := Lost(client.New(DefaultServer), fmt.Errorf("post: %w", full)); !errors.Is(err, full) || err.Error() != "post: "+full.Error() {
		t.Error(err)
	}
	if err := Lost(client.New(DefaultServer), fmt.Errorf("post: %w", syscall.ECONNRESET)); err.Error() != "the server at http://127.0.0.1:8080 can't be reached any more: connection reset by peer" {
		t.Error(err)
	}
}
