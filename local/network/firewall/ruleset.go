package firewall

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

type ruleset struct {
	family nftables.TableFamily
	name   string
	sets   []set
	chains []chain // a chain comes before those that jump to it
}

type set struct {
	nftables.Set
	elements []nftables.SetElement // of a constant set
}

type chain struct {
	nftables.Chain
	rules [][]expr.Any
}

func (r ruleset) table() *nftables.Table { return &nftables.Table{Family: r.family, Name: r.name} }

// numbering guards the library's counter of sets. Servers call install concurrently.
var numbering sync.Mutex

// install replaces the table atomically: no packet meets an incomplete one.
func (r ruleset) install(conn *nftables.Conn) error {
	t := r.table()
	conn.AddTable(t) // so that deleting it can't fail
	conn.DelTable(t)
	conn.AddTable(t)
	for _, s := range r.sets {
		s.Table = t
		numbering.Lock()
		err := conn.AddSet(&s.Set, s.elements)
		numbering.Unlock()
		if err != nil {
			return fmt.Errorf("set %s: %w", s.Name, err)
		}
	}
	for _, c := range r.chains {
		c.Table = t
		conn.AddChain(&c.Chain)
		for _, rule := range c.rules {
			conn.AddRule(&nftables.Rule{Table: t, Chain: &c.Chain, Exprs: rule})
		}
	}
	return conn.Flush()
}

// Results of verifying a table.
var (
	ErrChanged = errors.New("the packet filter was changed")
	ErrUnread  = errors.New("can't determine whether the packet filter was changed")
)

func changed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrChanged, fmt.Sprintf(format, args...))
}

// verify reads the table back, and returns an error unless it exists, is complete and contains
// nothing else. It returns ErrChanged only after two reads showed a change, because a read while
// other tables change may be inconsistent; else ErrUnread.
func (r ruleset) verify(conn *nftables.Conn) error {
	first := r.verifyOnce(conn)
	if first == nil {
		return nil
	}
	second := r.verifyOnce(conn)
	switch {
	case second == nil:
		return nil
	case errors.Is(first, ErrChanged) && errors.Is(second, ErrChanged):
		return second
	}
	return fmt.Errorf("%w: %s; %s", ErrUnread, first.Error(), second.Error())
}

// verifyOnce reads the table back once. ErrChanged may be due to a read during another change.
func (r ruleset) verifyOnce(conn *nftables.Conn) error {
	t, err := conn.ListTableOfFamily(r.name, r.family)
	if errors.Is(err, unix.ENOENT) {
		return changed("table %s is missing", r.name)
	}
	if err != nil {
		return fmt.Errorf("read table %s: %w", r.name, err)
	}
	if t.Flags != 0 {
		return changed("table %s is dormant or owned by another program", r.name)
	}
	if n, want := contents(t), len(r.chains)+len(r.sets); n != want {
		return changed("table %s has %d chains and sets, not %d", r.name, n, want)
	}
	if err := r.verifySets(conn, t); err != nil {
		return err
	}
	for _, want := range r.chains {
		if err := verifyRules(conn, t, want); err != nil { // a missing chain has no rules
			return err
		}
		// By name: a list contains all runners' chains, and can miss some while others change.
		c, err := conn.ListChain(t, want.Name)
		if err != nil {
			return fmt.Errorf("read chain %s of table %s: %w", want.Name, r.name, err)
		}
		if c.Type != want.Type || !same(c.Hooknum, want.Hooknum) || !same(c.Priority, want.Priority) || !same(c.Policy, want.Policy) {
			return changed("chain %s of table %s has another hook than the one that was made: %+v", want.Name, r.name, c)
		}
	}
	return nil
}

// contents counts a table's chains and sets. The library reads that big-endian number as a native one.
func contents(t *nftables.Table) int {
	return int(binary.BigEndian.Uint32(binary.NativeEndian.AppendUint32(nil, t.Use)))
}

func verifyRules(conn *nftables.Conn, t *nftables.Table, c chain) error {
	rules, err := conn.GetRules(t, &c.Chain)
	if err != nil {
		return err
	}
	if len(rules) != len(c.rules) {
		return changed("chain %s of table %s has %d rules, not %d", c.Name, t.Name, len(rules), len(c.rules))
	}
	for i, rule := range rules {
		if !slices.EqualFunc(rule.Exprs, c.rules[i], func(a, b expr.Any) bool { return reflect.DeepEqual(a, b) }) {
			return changed("rule %d in chain %s of table %s differs from the one that was made", i+1, c.Name, t.Name)
		}
	}
	return nil
}

// verifySets compares the table's sets, and the elements of constant ones, with those that were made.
func (r ruleset) verifySets(conn *nftables.Conn, t *nftables.Table) error {
	found, err := conn.GetSets(t)
	if err != nil {
		return err
	}
	if len(found) != len(r.sets) {
		return changed("table %s has %d sets, not %d", r.name, len(found), len(r.sets))
	}
	for _, want := range r.sets {
		i := slices.IndexFunc(found, func(s *nftables.Set) bool { return s.Name == want.Name })
		if i < 0 || found[i].Interval != want.Interval || found[i].Constant != want.Constant || found[i].HasTimeout != want.HasTimeout || found[i].KeyType.Bytes != want.KeyType.Bytes {
			return changed("set %s of table %s differs from the one that was made", want.Name, r.name)
		}
		if !want.Constant {
			continue
		}
		elements, err := conn.GetSetElements(found[i])
		if err != nil {
			return err
		}
		if !maps.Equal(bounds(elements), bounds(want.elements)) {
			return changed("set %s of table %s has other elements than those that it was made with", want.Name, r.name)
		}
	}
	return nil
}

// bounds returns the bounds of ranges, without the one that the kernel adds before the first.
func bounds(elements []nftables.SetElement) map[string]bool {
	all := map[string]bool{}
	for _, e := range elements {
		if zero := len(bytes.Trim(e.Key, "\x00")) == 0; zero && e.IntervalEnd {
			continue
		}
		all[fmt.Sprintf("%x %t", e.Key, e.IntervalEnd)] = true
	}
	return all
}

// same reports whether a and b are both nil, or point to equal values.
func same[T comparable](a, b *T) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// exists reports whether the table exists. Most runners have none, and checking is 50 times as fast
// as deleting a missing table.
func (r ruleset) exists(conn *nftables.Conn) (bool, error) {
	_, err := conn.ListTableOfFamily(r.name, r.family)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("find table %s: %w", r.name, err)
	}
	return true, nil
}

// remove deletes the table; a missing one is success.
func (r ruleset) remove(conn *nftables.Conn) error {
	conn.DelTable(r.table())
	if err := conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete table %s: %w", r.name, err)
	}
	return nil
}
