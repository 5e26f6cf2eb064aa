package metrics

import (
	"github.com/rockpool/rockpool/clients"
)

// peerFamilies are the metrics of callers' connections and memory.
func peerFamilies() []family[clients.Usage] {
	return []family[clients.Usage]{
		gauge("peers", "Addresses that have connections; for IPv6, networks of 64 bits.", func(u clients.Usage) float64 { return float64(u.Peers) }),
		gauge("connections", "Connections of all addresses. Each further concurrent request of an HTTP/2 connection counts as one.", func(u clients.Usage) float64 { return float64(u.Connections) }),
		gauge("bodies_held_bytes", "Memory for requests and WebSocket messages in progress, without the first 16 KiB of each.", func(u clients.Usage) float64 { return float64(u.BodyBytes) }),
		gauge("bodies_limit_bytes", "Largest value of rockpool_bodies_held_bytes: --body-memory.", func(u clients.Usage) float64 { return float64(u.BodyLimit) }),
		counters("peer_refusals_total", "Connections, requests and messages that were refused, by the limit they reached. Alert on CONNECTIONS, BODIES, TOKEN_… and GRANT_…: a setting is too low, or a client floods the server.", []string{"bound"}, func(u clients.Usage, emit emitter[float64]) {
			for bound, n := range u.Refused {
				emit(float64(n), bound.String())
			}
		}),
	}
}
