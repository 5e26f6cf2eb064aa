package access

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"

	"github.com/rockpool/rockpool/test/networktest"
	"github.com/rockpool/rockpool/test/wait"
)

// TestFilters makes each kind of change and checks that it is reported, and that changes of sets
// aren't: runners' names are added to sets all the time. After each change it makes a marker
// change, so that all earlier reports have arrived.
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
	told, ended := make(chan string, 10_000), make(chan error, 1)
	go func() { ended <- watchFilters(ctx, func(table string) { told <- table }) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	made := 0
	mark := func() string {
		made++
		name := fmt.Sprintf("mark-%d", made)
		conn.AddTable(&nftables.Table{Family: nftables.TableFamilyINet, Name: name})
		flush()
		return name
	}
	// since changes its own table, and returns the reports up to that change.
	since := func() (tables []string) {
		for last := mark(); ; {
			table := wait.Receive(t, told, "the change that the test made last")
			if table == last {
				return tables
			}
			tables = append(tables, table)
		}
	}
	wait.For(t, "it listens", func() bool { mark(); return len(told) > 0 })
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
		{"all is deleted", func() { conn.AddTable(ours); flush(); since(); conn.FlushRuleset() }, true},
	} {
		change.do()
		flush()
		if was := slices.Contains(since(), ours.Name); was != change.told {
			t.Errorf("%s: reported: %t, want %t", change.name, was, change.told)
		}
	}
}
