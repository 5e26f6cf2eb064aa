package server

import (
	"testing"

	"github.com/rockpool/rockpool/config"
)

// TestBoundsFollowFromMemory: the limit of all bodies always allows one body of the maximum size.
// Settings take precedence.
func TestBoundsFollowFromMemory(t *testing.T) {
	const mib, maxBody = 1 << 20, 32 << 20
	for _, test := range []struct {
		bounds        config.Bounds
		memory, files int64
		bodies, peer  int64
		all           int
		connections   int
		operations    int
		ofAll         int
	}{
		{config.Bounds{}, 1536 * mib, 1 << 20, 384 * mib, 192 * mib, 6144, 3072, 3072, 6144},
		{config.Bounds{}, 24576 * mib, 1 << 20, 1024 * mib, 512 * mib, 98304, 49152, 49152, 98304},
		{config.Bounds{}, 24576 * mib, 1024, 1024 * mib, 512 * mib, 768, 384, 49152, 98304},
		{config.Bounds{}, 128 * mib, 0, maxBody + 35_200_000, maxBody + 35_200_000, 512, 256, 256, 512},
		{config.Bounds{Connections: 10}, 128 * mib, 0, maxBody + 35_200_000, maxBody + 35_200_000, 10, 5, 256, 512},
		{config.Bounds{PeerConnections: 9000}, 1536 * mib, 0, 384 * mib, 192 * mib, 9000, 9000, 3072, 6144},
		{config.Bounds{BodyMemory: 80 * mib, PeerConnections: 5, PeerOperations: 6, TokenOperations: 7}, 1536 * mib, 0, 80 * mib, maxBody + 35_200_000, 6144, 5, 6, 7},
	} {
		b := bounds(test.bounds, maxBody, test.memory, test.files)
		if b.Bodies != test.bodies || b.PeerBodies != test.peer || b.AllConnections != test.all || b.Connections != test.connections || b.Operations != test.operations || b.TokenOperations != test.ofAll {
			t.Errorf("%+v of %d: %+v", test.bounds, test.memory, b)
		}
		if b.TokenSubscriptions != 2*b.Subscriptions || b.Subscriptions == 0 {
			t.Errorf("%+v: subscriptions of %+v", test.bounds, b)
		}
	}
}
