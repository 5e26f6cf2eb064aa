package firewall

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/test/networktest"
)

// TestChangedRulesAreDetected changes a runner's table and the shared table in each possible way.
// Each change is detected, or refused by the kernel.
func TestChangedRulesAreDetected(t *testing.T) {
	if !networktest.Alone(t) {
		return
	}
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	p := policy(0)
	p.Narrow, p.Allow = true, []netip.Prefix{netip.MustParsePrefix("20.0.0.0/24")}
	join(t, "a", p)
	own := made(t, "a", p)
	accept := []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	elements := func(whole ruleset, name string, change func(*nftables.Set, []nftables.SetElement) error) func() error {
		return func() error {
			set, err := conn.GetSetByName(whole.table(), name)
			if err != nil {
				return err
			}
			return change(set, []nftables.SetElement{{Key: []byte{20, 0, 0, 0}}, {Key: []byte{20, 0, 1, 0}, IntervalEnd: true}})
		}
	}
	verify := func() error { return Verify("a", p) }
	for _, whole := range []ruleset{own, shared()} {
		c := whole.chains[slices.IndexFunc(whole.chains, func(c chain) bool { return c.Policy != nil })].Chain // the first chain with a hook
		at := &nftables.Chain{Table: whole.table(), Name: c.Name}
		for name, change := range map[string]func() error{
			"a rule before ours": func() error {
				conn.InsertRule(&nftables.Rule{Table: at.Table, Chain: at, Exprs: accept})
				return nil
			},
			"a rule after ours": func() error {
				conn.AddRule(&nftables.Rule{Table: at.Table, Chain: at, Exprs: accept})
				return nil
			},
			"a rule in the place of ours": func() error {
				rules, err := conn.GetRules(at.Table, at)
				if err == nil {
					conn.ReplaceRule(&nftables.Rule{Table: at.Table, Chain: at, Handle: rules[0].Handle, Exprs: accept})
				}
				return err
			},
			"no rules": func() error {
				conn.FlushChain(at)
				return nil
			},
			"another policy": func() error {
				policy := nftables.ChainPolicyAccept + nftables.ChainPolicyDrop - *c.Policy
				c.Table, c.Policy = at.Table, &policy
				conn.AddChain(&c)
				return nil
			},
		} {
			seen(t, conn, whole, c.Name+": "+name, change, verify)
		}
	}
	for name, change := range map[string]func() error{
		"asleep":          func() error { return sleepingTable(own.table()) },
		"an element less": elements(own, "allow4", conn.SetDeleteElements),
		"an element more": elements(own, "permit4", conn.SetAddElements),
		"none denied":     func() error { conn.FlushSet(&nftables.Set{Table: own.table(), Name: "denied4"}); return nil },
		"another table":   func() error { conn.DelTable(own.table()); conn.AddTable(own.table()); return nil },
		"a set more": func() error {
			return conn.AddSet(&nftables.Set{Table: own.table(), Name: "more", KeyType: nftables.TypeIPAddr}, nil)
		},
		"all tables are gone": func() error { conn.FlushRuleset(); return nil },
	} {
		seen(t, conn, own, name, change, verify)
	}
}

// seen fails the test unless a change is refused or detected, and restores the table.
func seen(t *testing.T, conn *nftables.Conn, whole ruleset, name string, change, verify func() error) {
	t.Helper()
	if err := change(); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	refused := conn.Flush()
	switch err := verify(); {
	case refused != nil && !errors.Is(refused, unix.EBUSY):
		t.Errorf("%s: %v", name, refused)
	case refused != nil && err != nil:
		t.Errorf("%s: it is refused, and seen: %v", name, err)
	case refused == nil && !errors.Is(err, ErrChanged):
		t.Errorf("%s isn't seen: %v", name, err)
	}
	if err := errors.Join(shared().install(conn), whole.install(conn), verify()); err != nil {
		t.Fatal(err)
	}
}

// sleepingTable makes a table dormant, so that its chains see no packets. The library can't do
// that.
func sleepingTable(table *nftables.Table) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_NETFILTER)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	message := func(kind, flags uint16, family byte, resource uint16, attributes ...byte) []byte {
		m := binary.NativeEndian.AppendUint32(nil, uint32(unix.NLMSG_HDRLEN+4+len(attributes)))
		m = binary.NativeEndian.AppendUint16(m, kind)
		m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|flags)
		m = append(m, make([]byte, unix.NLMSG_HDRLEN-len(m))...)
		return append(binary.BigEndian.AppendUint16(append(m, family, 0), resource), attributes...)
	}
	attribute := func(kind uint16, value []byte) []byte {
		a := binary.NativeEndian.AppendUint16(nil, uint16(unix.NLA_HDRLEN+len(value)))
		a = append(binary.NativeEndian.AppendUint16(a, kind), value...)
		return append(a, make([]byte, -len(a)&(unix.NLA_ALIGNTO-1))...)
	}
	named := attribute(unix.NFTA_TABLE_NAME, append([]byte(table.Name), 0))
	batch := slices.Concat(
		message(unix.NFNL_MSG_BATCH_BEGIN, 0, 0, unix.NFNL_SUBSYS_NFTABLES),
		message(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWTABLE, unix.NLM_F_ACK, byte(table.Family), 0,
			append(named, attribute(unix.NFTA_TABLE_FLAGS, []byte{0, 0, 0, unix.NFT_TABLE_F_DORMANT})...)...),
		message(unix.NFNL_MSG_BATCH_END, 0, 0, unix.NFNL_SUBSYS_NFTABLES),
	)
	if err := unix.Sendto(fd, batch, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, 0)
	if err != nil || n < unix.NLMSG_HDRLEN+4 {
		return fmt.Errorf("%d bytes: %w", n, err)
	}
	if code := int32(binary.NativeEndian.Uint32(answer[unix.NLMSG_HDRLEN:])); code != 0 {
		return unix.Errno(-code)
	}
	return nil
}
