package sandboxtest

// firewallEdits remove the rules that confine a runner to its network policy. Rules are dropped or
// changed so that they match nothing. The program compares what the kernel has with the rules that
// are left.
var firewallEdits = []edit{
	{"local/network/firewall/link.go", `	if err := l.within.LinkSetIP6AddrGenMode(`, `	if Without("neighbours") {
	} else if err := l.within.LinkSetIP6AddrGenMode(`},
	{"local/network/firewall/without.go", "", `package firewall

import (
	"github.com/google/nftables/expr"
)

// Without reports whether this program is without a defence.
var Without = func(string) bool { return false }

func unless(defence string, part []expr.Any) []expr.Any {
	if Without(defence) {
		return nil
	}
	return part
}

func either(is, none set, defences ...string) set {
	for _, d := range defences {
		if Without(d) {
			return none
		}
	}
	return is
}

func otherThan(kind []byte) *expr.Cmp {
	if Without("machine") || Without("runners") { // to which their answers go
		return is([]byte{0xff, 0, 0, 0})
	}
	return isNot(kind)
}

func dropUnless(defence string) []expr.Any {
	if Without(defence) {
		return accept()
	}
	return drop()
}

func most(n uint32) uint32 {
	if Without("connections") {
		return 1 << 16
	}
	return n
}
`},
	{"local/sandbox/cmd/withoutfirewall.go", "", `package main

import "github.com/rockpool/rockpool/local/network/firewall"

func init() { firewall.Without = isWithout }
`},
	{"local/network/firewall/rules.go", `	in := [][]expr.Any{rule(notFrom(v4), drop()), rule(notFrom(v6), drop())}
`, `	in := [][]expr.Any{rule(notFrom(v4), drop()), rule(notFrom(v6), drop())}
	if Without("source") {
		in = nil
	}
`},
	{"local/network/firewall/rules.go", `port(false, n), flags(tcpSYN|tcpACK, tcpSYN, false), accept())`, `port(false, n), unless("answers", flags(tcpSYN|tcpACK, tcpSYN, false)), accept())`},
	{"local/network/firewall/rules.go", `	refused := [][]expr.Any{`, `	if Without("protocols") {
		protocols = [][]expr.Any{accept()}
	}
	refused := [][]expr.Any{`},
	{"local/network/firewall/rules.go", `isNot([]byte{unix.RTN_UNICAST, 0, 0, 0})`, `otherThan([]byte{unix.RTN_UNICAST, 0, 0, 0})`},
	{"local/network/firewall/rules.go", `within(runners4)`, `within(either(runners4, permit4, "runners"))`},
	{"local/network/firewall/rules.go", `within(runners6)`, `within(either(runners6, permit6, "runners"))`},
	{"local/network/firewall/rules.go", `within(denied4)`, `within(either(denied4, permit4, "denied", "runners"))`},
	{"local/network/firewall/rules.go", `within(denied6)`, `within(either(denied6, permit6, "denied", "runners"))`},
	{"local/network/firewall/rules.go", `rule(link(expr.MetaKeyOIFNAME), drop())`, `rule(link(expr.MetaKeyOIFNAME), dropUnless("runners"))`},
	{"local/network/firewall/rules.go", `Connlimit{Count: maxConnections,`, `Connlimit{Count: most(maxConnections),`},
}
