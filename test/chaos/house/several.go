package house

import (
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/test/postgrestest"
)

// A seat has a sequence of servers. Concurrent servers have a seat each, and share a database.
type seat struct {
	address string
	args    []string
	server  *Server // the last one; nil means none yet
}

// free reports whether a server may be started there.
func (s *seat) free() bool {
	if s.server == nil {
		return true
	}
	select {
	case <-s.server.Ended:
		return true
	default:
		return false
	}
}

// UseSeveral runs this many concurrent servers on the Nomad, with a PostgreSQL of the run. The
// house's address forwards each connection to one of them.
func (h *House) UseSeveral(ctx context.Context, servers int) (err error) {
	if h.Database, err = postgrestest.New(ctx); err != nil {
		return err
	}
	// All addresses are on the house's own host, so that no other program binds to them.
	host, _, err := net.SplitHostPort(h.address)
	if err != nil {
		return err
	}
	h.seats = nil
	for i := range servers {
		address, err := freeAddress(ctx, host)
		if err != nil {
			return err
		}
		peer, err := freeAddress(ctx, host)
		if err != nil {
			return err
		}
		h.seats = append(h.seats, &seat{address: address, args: []string{
			"--listen", address, "--peer-listen", peer, "--data", filepath.Join(h.data, strconv.Itoa(i)), "--database", h.Database.URL,
		}})
	}
	if h.front, err = (&net.ListenConfig{}).Listen(ctx, "tcp", h.address); err != nil {
		return err
	}
	go h.passOn() // until Close
	return nil
}

// Close ends what UseNomad and UseSeveral started.
func (h *House) Close() error {
	var errs []error
	if h.front != nil {
		errs = append(errs, h.front.Close())
	}
	if h.Database != nil {
		errs = append(errs, h.Database.Close())
	}
	return errors.Join(append(errs, h.Nomad.Close())...)
}

// freeAddress returns an address with a port that was free a moment ago. Another program can take
// it meanwhile.
func freeAddress(ctx context.Context, host string) (string, error) {
	free, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", err
	}
	return free.Addr().String(), free.Close()
}

// passOn forwards each connection to the next server that accepts it, like a load balancer.
func (h *House) passOn() {
	var next atomic.Uint64
	for {
		conn, err := h.front.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			for range h.seats {
				at := h.seats[next.Add(1)%uint64(len(h.seats))]
				server, err := net.DialTimeout("tcp", at.address, time.Second)
				if err != nil {
					continue
				}
				defer server.Close()
				go func() {
					_, _ = io.Copy(server, conn) // until one side ends
					_ = server.(*net.TCPConn).CloseWrite()
				}()
				_, _ = io.Copy(conn, server)
				return
			}
		}()
	}
}

// Living returns the servers that run.
func (h *House) Living() []*Server {
	var all []*Server
	for _, seat := range h.seats {
		if !seat.free() {
			all = append(all, seat.server)
		}
	}
	return all
}

// Vacant returns how many servers may still be started.
func (h *House) Vacant() int { return len(h.seats) - len(h.Living()) }

// Watch sends small requests to the servers continuously until ctx ends, and returns the longest
// time without an answer. It calls tell for each such time above a second.
func (h *House) Watch(ctx context.Context, tell func(format string, args ...any)) (longest time.Duration) {
	last := time.Now()
	for ctx.Err() == nil {
		ask, cancel := context.WithTimeout(ctx, 10*time.Second)
		_, err := client.GetEnvironments(ask, h)
		cancel()
		if err == nil {
			silence := time.Since(last)
			if silence > time.Second {
				tell("no answer for %s", silence.Round(time.Millisecond))
			}
			longest, last = max(longest, silence), time.Now()
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return longest
}
