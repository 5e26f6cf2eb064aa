package watch

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/rockpool/rockpool/local/network/networktest"
)

// TestFilters has the kernel tell of each kind of change, and not of what is added
// to a set, as the runners' names are all the time. After each change it makes one
// more, so that all that was told of it is known.
func TestFilters(t *testing.T) {
	if !networktest.Alone(t) {
		return
	}
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	flush := func() {
		t.Helper()
		if err := conn.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	ours := &nftables.Table{Family: nftables.TableFamilyINet, Name: "rockpool"}
	drop, accept := nftables.ChainPolicyDrop, nftables.ChainPolicyAccept
	chain := &nftables.Chain{Table: ours, Name: "forward", Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter, Policy: &drop}
	set := &nftables.Set{Table: ours, Name: "named", KeyType: nftables.TypeIPAddr}
	verdict := func(kind expr.VerdictKind) *nftables.Rule {
		return &nftables.Rule{Table: ours, Chain: chain, Exprs: []expr.Any{&expr.Verdict{Kind: kind}}}
	}

	ctx, cancel := context.WithCancel(t.Context())
	told, ended := make(chan string, 100), make(chan error, 1)
	go func() { ended <- Filters(ctx, func(table string) { told <- table }) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	// since makes a table of its own, and returns what was told until that was.
	made := 0
	since := func(within time.Duration) (tables []string, all bool) {
		made++
		mark := fmt.Sprintf("mark-%d", made)
		conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: mark})
		flush()
		for late := time.After(within); ; {
			select {
			case table := <-told:
				if table == mark {
					return tables, true
				}
				tables = append(tables, table)
			case <-late:
				return tables, false
			}
		}
	}
	for end := time.Now().Add(20 * time.Second); ; { // it may not listen yet
		if _, all := since(50 * time.Millisecond); all {
			break
		} else if time.Now().After(end) {
			t.Fatal("nothing is told")
		}
	}
	for _, change := range []struct {
		name string
		do   func()
		told bool
	}{
		{"a table is made", func() { conn.AddTable(ours) }, true},
		{"a chain is made", func() { conn.AddChain(chain) }, true},
		{"a rule is added", func() { conn.AddRule(verdict(expr.VerdictDrop)) }, true},
		{"a rule is put before the others", func() { conn.InsertRule(verdict(expr.VerdictAccept)) }, true},
		{"a chain's policy is changed", func() {
			changed := *chain
			changed.Policy = &accept
			conn.AddChain(&changed)
		}, true},
		{"a set is filled", func() {
			if err := conn.AddSet(set, []nftables.SetElement{{Key: []byte{20, 0, 0, 2}}}); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"a rule is taken away", func() {
			rules, err := conn.GetRules(ours, chain)
			if err != nil {
				t.Fatal(err)
			}
			if err := conn.DelRule(rules[0]); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"a chain is flushed", func() { conn.FlushChain(chain) }, true},
		{"a chain is deleted", func() { conn.DelChain(chain) }, true},
		{"a table is deleted", func() { conn.DelTable(ours) }, true},
		{"all is deleted", func() { conn.AddTable(ours); flush(); since(20 * time.Second); conn.FlushRuleset() }, true},
	} {
		change.do()
		flush()
		tables, all := since(20 * time.Second)
		if !all {
			t.Fatalf("%s: not even the next change is told", change.name)
		}
		if was := slices.Contains(tables, ours.Name); was != change.told {
			t.Errorf("%s: told: %t", change.name, was)
		}
	}
}
