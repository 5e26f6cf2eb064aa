package main

import "testing"

// TestBoundsFollowFromMemory: what all bodies may take leaves room for one of the
// largest; settings go before.
func TestBoundsFollowFromMemory(t *testing.T) {
	const mib, maxBody = 1 << 20, 32 << 20
	for _, test := range []struct {
		config        BoundsConfig
		memory, files int64
		token         bool
		bodies, peer  int64
		connections   int
		operations    int
		ofToken       int
	}{
		{BoundsConfig{}, 1536 * mib, 1 << 20, true, 384 * mib, 192 * mib, 12288, 3072, 6144},
		{BoundsConfig{}, 24576 * mib, 1 << 20, false, 1024 * mib, 512 * mib, 196608, 49152, 0},
		{BoundsConfig{}, 24576 * mib, 1024, true, 1024 * mib, 512 * mib, 512, 49152, 98304},
		{BoundsConfig{}, 128 * mib, 0, true, maxBody + 35_200_000, maxBody + 35_200_000, 1024, 256, 512},
		{BoundsConfig{BodyMemory: 80 * mib, PeerConnections: 5, PeerOperations: 6, TokenOperations: 7}, 1536 * mib, 0, true, 80 * mib, maxBody + 35_200_000, 5, 6, 7},
	} {
		b := test.config.bounds(maxBody, test.memory, test.files, test.token)
		if b.Bodies != test.bodies || b.PeerBodies != test.peer || b.Connections != test.connections || b.Operations != test.operations || b.TokenOperations != test.ofToken {
			t.Errorf("%+v of %d: %+v", test.config, test.memory, b)
		}
		if (b.TokenSubscriptions > 0) != test.token || b.Subscriptions == 0 {
			t.Errorf("%+v: subscriptions of %+v", test.config, b)
		}
	}
}
