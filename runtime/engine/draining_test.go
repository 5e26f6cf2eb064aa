package engine

import (
	"testing"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/refusal"
)

// TestSetDrainingNeedsADrainer uses a cluster that can't be drained through the server.
func TestSetDrainingNeedsADrainer(t *testing.T) {
	b := newBed(t)
	refusal.Want(t, b.Server.SetDraining(asServer(t), true), runtime.CodeInvalidInput, "draining")
	if status, err := b.Server.ClusterStatus(asServer(t)); err != nil || status.Draining != nil || b.Draining() {
		t.Errorf("%+v %v", status, err)
	}
}
