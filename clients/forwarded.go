package clients

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// A client is the origin of a request: the peer of its connection, or the client that a trusted
// proxy names.
type client struct {
	address   netip.Addr // zero on a Unix socket
	peer      *caller    // nil if it has no bounds
	encrypted bool       // by the report of a trusted proxy
}

type clientKey struct{}

// clientOf returns the client of a request; false if Handler hasn't stored one.
func clientOf(ctx context.Context) (client, bool) {
	of, ok := ctx.Value(clientKey{}).(client)
	return of, ok
}

// Handler serves requests with next, each for the client that it comes from. It sets their TLS state,
// and limits the time for a body that next doesn't read.
//
// On a connection from a trusted proxy, the client is the last address in X-Forwarded-For that
// isn't a trusted proxy's. The headers of other peers are ignored.
//
// Each concurrent request of an HTTP/2 connection after the first counts as a connection. A request
// beyond the limit gets 429 without a body.
func (p *Limiter) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w, end := encrypted(w, r)
		defer end()
		boundUnread(w, r)
		of, ok := ConnOf(r.Context()).(*conn)
		if !ok {
			next.ServeHTTP(w, r)
			return
		}
		from := client{address: addressOf(of.RemoteAddr()), peer: of.peer}
		if of.peer.trusted {
			from.encrypted = forwardedByTLS(r.Header)
			from.address = p.forwarded(from.address, r.Header.Values("X-Forwarded-For"))
			from.peer = p.holdPeer(from.address)
			defer p.releasePeer(from.peer)
		}
		if of.streams.Add(1) > 1 {
			if err := p.acquireConnection(from.peer); err != nil {
				of.streams.Add(-1)
				w.Header().Set("Retry-After", RetryAfter)
				w.Header().Set("Content-Length", "0") // the response to a body could wait for the client
				w.WriteHeader(http.StatusTooManyRequests)
				return
			}
			defer p.releaseConnection(from.peer)
		}
		defer of.streams.Add(-1)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), clientKey{}, from)))
	})
}

// forwarded returns the client of a request that a trusted proxy passes on.
func (p *Limiter) forwarded(proxy netip.Addr, headers []string) netip.Addr {
	from := proxy
	for rest := strings.Join(headers, ","); rest != ""; {
		var text string
		if comma := strings.LastIndexByte(rest, ','); comma >= 0 {
			rest, text = rest[:comma], rest[comma+1:]
		} else {
			rest, text = "", rest
		}
		address, ok := forwardedAddress(strings.TrimSpace(text))
		if !ok {
			return from // it is no address: the proxy that passed it on is the best known client
		}
		if from = address; !p.trusts(from) {
			return from
		}
	}
	return from
}

// forwardedAddress parses an address with or without a port.
func forwardedAddress(text string) (netip.Addr, bool) {
	if withPort, err := netip.ParseAddrPort(text); err == nil {
		return plain(withPort.Addr()), true
	}
	address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	return plain(address), err == nil
}

// forwardedByTLS reports whether a client's request came to its proxy by TLS, as the nearest proxy
// reports.
func forwardedByTLS(header http.Header) bool {
	all := strings.Join(header.Values("X-Forwarded-Proto"), ",")
	return strings.EqualFold(strings.TrimSpace(all[strings.LastIndexByte(all, ',')+1:]), "https")
}

// plain returns an address without a zone. An IPv4 address in an IPv6 one becomes IPv4.
func plain(address netip.Addr) netip.Addr { return address.Unmap().WithZone("") }

// addressOf returns the address of a connection's peer; zero for a Unix socket.
func addressOf(address net.Addr) netip.Addr {
	tcp, ok := address.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return plain(tcp.AddrPort().Addr())
}

// trusts reports whether an address is a trusted proxy's.
func (p *Limiter) trusts(address netip.Addr) bool {
	return slices.ContainsFunc(p.proxies, func(network netip.Prefix) bool { return network.Contains(address) })
}

// ClientAddress returns the address that the request of ctx comes from: that of its connection's
// peer or, if that is a trusted proxy, of the client that the proxy names. It is zero for a Unix
// socket, and if the server lacks [ConnContext].
func ClientAddress(ctx context.Context) netip.Addr {
	if from, ok := clientOf(ctx); ok {
		return from.address
	}
	if conn := ConnOf(ctx); conn != nil {
		return addressOf(conn.RemoteAddr())
	}
	return netip.Addr{}
}

// Encrypted reports whether a request came by TLS, to this server or to a trusted proxy that
// reports it.
func Encrypted(r *http.Request) bool {
	from, _ := clientOf(r.Context())
	return r.TLS != nil || from.encrypted
}
