package metrics

import "github.com/rockpool/rockpool/graph/transport/peers"

// peerFamilies show what callers take of the server.
func peerFamilies() []family[peers.Usage] {
	return []family[peers.Usage]{
		gauge("peers", "Addresses that have connections.", func(u peers.Usage) float64 { return float64(u.Peers) }),
		gauge("connections", "Connections of all peers.", func(u peers.Usage) float64 { return float64(u.Connections) }),
		gauge("bodies_held_bytes", "Memory for requests and WebSocket messages that are read or carried out.", func(u peers.Usage) float64 { return float64(u.BodyBytes) }),
		gauge("bodies_limit_bytes", "What it may be.", func(u peers.Usage) float64 { return float64(u.BodyLimit) }),
		counters("peer_refusals_total", "Connections, requests and messages that were refused for a bound of peers.", []string{"bound"}, func(u peers.Usage, emit emitter[float64]) {
			for bound, n := range u.Refused {
				emit(float64(n), bound.String())
			}
		}),
	}
}
