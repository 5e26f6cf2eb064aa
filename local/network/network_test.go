package network

import (
	"net/netip"
	"strings"
	"testing"
)

var pool = Pool{DefaultPool4, DefaultPool6}

func TestReachable(t *testing.T) {
	permit := prefixes("192.168.7.0/24", "10.0.0.0/8", "fd77::/64")
	for text, want := range map[string]bool{
		"1.1.1.1": true, "20.0.0.1": true, "172.15.255.255": true, "172.32.0.0": true, "11.0.0.0": true, "223.255.255.255": true, "100.63.255.255": true, "100.128.0.0": true,
		"2606:4700::1": true, "2a00::1": true, "2001:200::1": true, "::ffff:1.1.1.1": true,
		"0.0.0.0": false, "127.0.0.1": false, "172.16.0.1": false, "172.31.255.255": false, "192.168.8.1": false, "100.64.0.1": false, "169.254.169.254": false,
		"168.63.129.16": false, "192.0.0.192": false, "198.18.0.1": false, "198.19.255.255": false, "224.0.0.1": false, "240.0.0.1": false, "255.255.255.255": false,
		"::": false, "::1": false, "::ffff:127.0.0.1": false, "::ffff:172.16.0.1": false, "64:ff9b::a00:1": false, "64:ff9b:1::1": false, "100::1": false,
		"2001::1": false, "2001:db8::1": false, "2002:a00:1::": false, "3fff::1": false, "fc00::1": false, "fd00:ec2::254": false, "fe80::1": false, "fec0::1": false, "ff02::1": false, "4000::1": false,
		"192.168.7.9": true, "10.1.2.3": true, "fd77::9": true, // permitted
		"10.213.0.1": false, "10.213.4.4": false, "fd52:6f63:6b70:6f6f::2": false, // but not other runners
	} {
		if got := Reachable(netip.MustParseAddr(text), pool, permit); got != want {
			t.Errorf("%s can be reached: %t, want %t", text, got, want)
		}
	}
	if Reachable(netip.Addr{}, pool, nil) || Reachable(netip.MustParseAddr("fe80::1%eth0"), pool, nil) {
		t.Error("an invalid address is reachable")
	}
}

// The packet filter's ranges agree with Reachable, and are disjoint.
func TestRanges(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		ranges := Denied(v6)
		for i, r := range ranges {
			if r.To.Less(r.From) || i > 0 && !ranges[i-1].To.Next().Less(r.From) {
				t.Errorf("%v follows %v", r, ranges[max(0, i-1)])
			}
			for _, a := range []netip.Addr{r.From.Prev(), r.From, r.To, r.To.Next()} {
				if inside := a == r.From || a == r.To; a.IsValid() && Reachable(a, Pool{}, nil) == inside {
					t.Errorf("%s, at an end of %v", a, r)
				}
			}
		}
	}
	got := Ranges(prefixes("10.0.1.0/24", "10.0.0.0/24", "10.0.0.128/25", "::/0", "10.0.3.0/24", "255.255.255.255/32"), false)
	if len(got) != 3 || got[0].From.String() != "10.0.0.0" || got[0].To.String() != "10.0.1.255" || got[2].To.String() != "255.255.255.255" {
		t.Errorf("%v", got)
	}
}

func TestOnlyDenied(t *testing.T) {
	permit := prefixes("10.1.0.0/16")
	for text, want := range map[string]bool{
		"10.0.0.0/16": true, "192.168.0.0/16": true, "10.213.0.0/24": true, "fd00::/8": true, "::ffff:0:0/96": true, "0.0.0.0/8": true, "10.213.0.7/32": true,
		"10.1.0.0/24": false, "10.0.0.0/8": false, "0.0.0.0/0": false, "::/0": false, "20.0.0.0/8": false, "192.0.0.0/8": false, "2000::/3": false,
	} {
		if got := OnlyDenied(netip.MustParsePrefix(text), pool, permit); got != want {
			t.Errorf("%s is only denied: %t, want %t", text, got, want)
		}
	}
}

func TestPool(t *testing.T) {
	v4, v6, err := pool.Addresses(50277)
	if err != nil || v4.String() != "10.213.196.103" || v6.String() != "fd52:6f63:6b70:6f6f::c467" || pool.Gateway().String() != "10.213.0.1" {
		t.Errorf("%s, %s, %v", v4, v6, err)
	}
	small := Pool{netip.MustParsePrefix("192.168.0.0/16"), DefaultPool6}
	if err := small.Check(); err != nil {
		t.Error(err)
	}
	for slot, want := range map[int]bool{-1: false, 0: true, 65532: true, 65533: false} {
		v4, _, err := small.Addresses(slot)
		if (err == nil) != want || want && (!small.V4.Contains(v4) || v4.String() == "192.168.255.255") {
			t.Errorf("slot %d: %s, %v", slot, v4, err)
		}
	}
	for _, bad := range []Pool{{}, {prefixes("20.0.0.0/16")[0], DefaultPool6}, {DefaultPool4, prefixes("2a00::/64")[0]}, {netip.MustParsePrefix("10.1.2.3/16"), DefaultPool6}, {prefixes("10.0.0.0/17")[0], DefaultPool6}} {
		if bad.Check() == nil {
			t.Errorf("%v is taken", bad)
		}
	}
}

func TestPolicy(t *testing.T) {
	good := Policy{Offer: Offer{Pool: pool, Permit: prefixes("10.1.0.0/16"), Bandwidth: 100}, Request: Request{Egress: true, Narrow: true, Allow: prefixes("20.0.0.0/8"), Ports: []uint16{80}, Bandwidth: 50}}
	if err := good.Check(); err != nil || good.Rate() != 50 {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Policy){
		"more than is offered":   func(p *Policy) { p.Request.Bandwidth = 101 },
		"a negative rate":        func(p *Policy) { p.Request.Bandwidth = -1 },
		"no rate":                func(p *Policy) { p.Offer.Bandwidth = 0 },
		"an unmasked network":    func(p *Policy) { p.Allow = []netip.Prefix{netip.MustParsePrefix("20.0.0.1/8")} },
		"a mapped network":       func(p *Policy) { p.Allow = []netip.Prefix{netip.MustParsePrefix("::ffff:20.0.0.0/104")} },
		"no network":             func(p *Policy) { p.Allow = []netip.Prefix{{}} },
		"too many networks":      func(p *Policy) { p.Allow = make([]netip.Prefix, MaxAllow+1) },
		"port 0":                 func(p *Policy) { p.Ports = []uint16{0} },
		"a port twice":           func(p *Policy) { p.Ports = []uint16{80, 80} },
		"a slot without address": func(p *Policy) { p.Slot = 1 << 16 },
		"networks for nothing":   func(p *Policy) { p.Narrow = false },
		"narrow without egress":  func(p *Policy) { p.Egress = false },
		"permitted metadata":     func(p *Policy) { p.Permit = prefixes("169.254.169.254/32") },
		"permitted loopback":     func(p *Policy) { p.Permit = prefixes("127.0.0.0/8") },
		"all permitted":          func(p *Policy) { p.Permit = prefixes("0.0.0.0/0") },
		"permitted link-local":   func(p *Policy) { p.Permit = prefixes("fe80::/64") },
	} {
		p := good
		spoil(&p)
		if p.Check() == nil {
			t.Errorf("%s is taken", name)
		}
	}
	for _, l := range []Lease{{}, {make([]netip.Addr, MaxLease+1)}, {[]netip.Addr{{}}}, {[]netip.Addr{netip.MustParseAddr("::ffff:1.2.3.4")}}} {
		if l.Check() == nil {
			t.Errorf("a lease of %v is taken", l)
		}
	}
}

func TestName(t *testing.T) {
	a, b := Name("01a201b6-92e2-7ed3-9e45-c717839a38cf"), Name("01a201b6-92e2-7ed3-9e45-c717839a38ce")
	if a == b || len(a) > 15 || !strings.HasPrefix(a, LinkPrefix) || strings.Trim(a[3:], "0123456789abcdefghijklmnopqrstuv") != "" {
		t.Errorf("%s, %s", a, b)
	}
}
