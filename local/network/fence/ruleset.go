package fence

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"
)

// A ruleset is one table with all that is in it.
type ruleset struct {
	family nftables.TableFamily
	name   string
	sets   []set
	chains []chain // one that another goes to comes first
}

type set struct {
	nftables.Set
	elements []nftables.SetElement // of what never changes
}

type chain struct {
	nftables.Chain
	rules [][]expr.Any
}

func (r ruleset) table() *nftables.Table { return &nftables.Table{Family: r.family, Name: r.name} }

// install puts the table in the place of what has its name, in one step: there
// is no moment at which a packet finds half of it.
func (r ruleset) install(conn *nftables.Conn) error {
	t := r.table()
	conn.AddTable(t) // or there might be nothing to delete
	conn.DelTable(t)
	conn.AddTable(t)
	for _, s := range r.sets {
		s.Table = t
		if err := conn.AddSet(&s.Set, s.elements); err != nil {
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

// verify reads the table back, and returns an error unless it is there, whole,
// and has nothing else in it.
func (r ruleset) verify(conn *nftables.Conn) error {
	t, err := conn.ListTableOfFamily(r.name, r.family)
	if err != nil {
		return fmt.Errorf("table %s: %w", r.name, err)
	}
	if t.Flags != 0 {
		return fmt.Errorf("table %s is dormant, or another's", r.name)
	}
	if err := r.verifySets(conn, t); err != nil {
		return err
	}
	all, err := conn.ListChainsOfTableFamily(r.family)
	if err != nil {
		return err
	}
	found := map[string]*nftables.Chain{}
	for _, c := range all {
		if c.Table.Name == r.name {
			found[c.Name] = c
		}
	}
	if len(found) != len(r.chains) {
		return fmt.Errorf("table %s has %d chains, not %d", r.name, len(found), len(r.chains))
	}
	for _, want := range r.chains {
		c := found[want.Name]
		if c == nil || c.Type != want.Type || !same(c.Hooknum, want.Hooknum) || !same(c.Priority, want.Priority) || !same(c.Policy, want.Policy) {
			return fmt.Errorf("chain %s of table %s isn't hooked in as it should be: %+v", want.Name, r.name, c)
		}
		if err := verifyRules(conn, t, c, want.rules); err != nil {
			return err
		}
	}
	return nil
}

func verifyRules(conn *nftables.Conn, t *nftables.Table, c *nftables.Chain, want [][]expr.Any) error {
	rules, err := conn.GetRules(t, c)
	if err != nil {
		return err
	}
	if len(rules) != len(want) {
		return fmt.Errorf("chain %s of table %s has %d rules, not %d", c.Name, t.Name, len(rules), len(want))
	}
	for i, rule := range rules {
		if !slices.EqualFunc(rule.Exprs, want[i], func(a, b expr.Any) bool { return reflect.DeepEqual(a, b) }) {
			return fmt.Errorf("rule %d in chain %s of table %s isn't the one that was made", i+1, c.Name, t.Name)
		}
	}
	return nil
}

func (r ruleset) verifySets(conn *nftables.Conn, t *nftables.Table) error {
	found, err := conn.GetSets(t)
	if err != nil {
		return err
	}
	if len(found) != len(r.sets) {
		return fmt.Errorf("table %s has %d sets, not %d", r.name, len(found), len(r.sets))
	}
	for _, want := range r.sets {
		i := slices.IndexFunc(found, func(s *nftables.Set) bool { return s.Name == want.Name })
		if i < 0 || found[i].Interval != want.Interval || found[i].Constant != want.Constant || found[i].HasTimeout != want.HasTimeout || found[i].KeyType.Bytes != want.KeyType.Bytes {
			return fmt.Errorf("set %s of table %s isn't the one that was made", want.Name, r.name)
		}
		if !want.Constant {
			continue
		}
		elements, err := conn.GetSetElements(found[i])
		if err != nil {
			return err
		}
		if !maps.Equal(marks(elements), marks(want.elements)) {
			return fmt.Errorf("set %s of table %s hasn't the elements that it was made with", want.Name, r.name)
		}
	}
	return nil
}

// marks returns the ends of a set's ranges; the kernel adds one before the first.
func marks(elements []nftables.SetElement) map[string]bool {
	all := map[string]bool{}
	for _, e := range elements {
		if zero := len(bytes.Trim(e.Key, "\x00")) == 0; zero && e.IntervalEnd {
			continue
		}
		all[fmt.Sprintf("%x %t", e.Key, e.IntervalEnd)] = true
	}
	return all
}

func same[T comparable](a, b *T) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// remove deletes the table; one that isn't there is success. Most runners have
// none, and to look is 50 times as fast as to try.
func (r ruleset) remove(conn *nftables.Conn) error {
	if _, err := conn.ListTableOfFamily(r.name, r.family); errors.Is(err, unix.ENOENT) {
		return nil
	} else if err != nil {
		return fmt.Errorf("look for table %s: %w", r.name, err)
	}
	conn.DelTable(r.table())
	if err := conn.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("delete table %s: %w", r.name, err)
	}
	return nil
}
