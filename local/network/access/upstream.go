package access

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/rockpool/rockpool/local/network"
)

func systemResolvers() ([]netip.AddrPort, error) {
	file, err := os.Open("/etc/resolv.conf")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var all []netip.AddrPort
	for lines := bufio.NewScanner(io.LimitReader(file, 1<<20)); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(f[1]); err == nil {
			all = append(all, netip.AddrPortFrom(a, 53))
		}
	}
	if len(all) == 0 {
		return nil, errors.New("/etc/resolv.conf has no name server")
	}
	return all, nil
}

// tryWithin bounds the wait for one name server before the next one is used.
const tryWithin = 2 * time.Second

// forward asks the name servers in turn, and returns the permitted part of the first answer.
func (r *resolver) forward(ctx context.Context, q dnsmessage.Question) ([]dnsmessage.Resource, dnsmessage.RCode, error) {
	var failed error
	for _, server := range r.upstreams {
		m, err := exchange(ctx, server, q)
		if err == nil && m.RCode != dnsmessage.RCodeSuccess && m.RCode != dnsmessage.RCodeNameError {
			err = fmt.Errorf("name server %s: %s", server, m.RCode)
		}
		if err == nil {
			return r.chain(q, m.Answers), m.RCode, nil
		}
		failed = errors.Join(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, 0, cmp.Or(failed, errors.New("no name server is configured"))
}

// exchange sends a query to one name server; if the answer is truncated, it repeats it over TCP.
func exchange(ctx context.Context, server netip.AddrPort, q dnsmessage.Question) (*dnsmessage.Message, error) {
	ctx, cancel := context.WithTimeout(ctx, tryWithin)
	defer cancel()
	for _, protocol := range []string{"udp", "tcp"} {
		m, err := exchangeOver(ctx, protocol, server, q)
		if err != nil || !m.Truncated {
			return m, err
		}
	}
	return nil, fmt.Errorf("name server %s: its answer is truncated", server)
}

// exchangeOver waits for the matching answer until ctx ends. Over UDP it ignores other packets.
func exchangeOver(ctx context.Context, protocol string, server netip.AddrPort, q dnsmessage.Question) (*dnsmessage.Message, error) {
	var d net.Dialer // a new port each time, so that answers can't be forged by guessing port and id
	conn, err := d.DialContext(ctx, protocol, server.String())
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	id := uint16(rand.Uint32()) // from a cryptographically secure generator
	question := dnsmessage.Message{Header: dnsmessage.Header{ID: id, RecursionDesired: true}, Questions: []dnsmessage.Question{q}}
	packed, err := question.Pack()
	if err != nil {
		return nil, err
	}
	if protocol == "tcp" {
		err = writeFramed(conn, packed)
	} else {
		_, err = conn.Write(packed)
	}
	for err == nil {
		var answer []byte
		if protocol == "tcp" {
			answer, err = readFramed(conn)
		} else {
			answer = make([]byte, maxMessage)
			var n int
			n, err = conn.Read(answer)
			answer = answer[:n]
		}
		if err != nil {
			break
		}
		var m dnsmessage.Message
		if m.Unpack(answer) == nil && m.Response && m.ID == id && len(m.Questions) == 1 && same(m.Questions[0], q) {
			return &m, nil
		}
		if protocol == "tcp" {
			err = errors.New("its answer doesn't match the query")
		}
	}
	return nil, fmt.Errorf("name server %s: %w", server, err)
}

func same(a, b dnsmessage.Question) bool {
	return a.Type == b.Type && a.Class == b.Class && strings.EqualFold(a.Name.String(), b.Name.String())
}

// chain returns the addresses of a query's name, with their aliases. It leaves out addresses that
// no runner reaches, so that programs don't learn internal addresses and can't be led there by the
// owner of a name (DNS rebinding).
func (r *resolver) chain(q dnsmessage.Question, answers []dnsmessage.Resource) []dnsmessage.Resource {
	var kept []dnsmessage.Resource
	name, leased := q.Name.String(), 0
	for range 16 { // longest chain of aliases
		next := ""
		for _, a := range answers {
			if !strings.EqualFold(a.Header.Name.String(), name) || a.Header.Class != dnsmessage.ClassINET {
				continue
			}
			a.Header.TTL = min(a.Header.TTL, longestTTL)
			if alias, ok := a.Body.(*dnsmessage.CNAMEResource); ok {
				if next == "" {
					kept, next = append(kept, a), alias.CNAME.String()
				}
				continue
			}
			// The answer has no more addresses than one lease can hold.
			addr, ok := addressOf(a)
			if ok && !addr.Is4In6() && a.Header.Type == q.Type && leased < network.MaxLease && network.Reachable(addr, r.offer.Pool, r.offer.Permit) {
				kept, leased = append(kept, a), leased+1
			}
		}
		if next == "" {
			break
		}
		name = next
	}
	return kept
}

func addressOf(r dnsmessage.Resource) (netip.Addr, bool) {
	switch body := r.Body.(type) {
	case *dnsmessage.AResource:
		return netip.AddrFrom4(body.A), true
	case *dnsmessage.AAAAResource:
		return netip.AddrFrom16(body.AAAA), true
	}
	return netip.Addr{}, false
}

func addresses(of []dnsmessage.Resource) []netip.Addr {
	var all []netip.Addr
	for _, r := range of {
		if a, ok := addressOf(r); ok {
			all = append(all, a)
		}
	}
	return all
}
