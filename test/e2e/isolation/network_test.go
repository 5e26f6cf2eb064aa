package isolation

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/google/nftables"

	"github.com/rockpool/rockpool/doctor"
	"github.com/rockpool/rockpool/doctor/attack/world"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/networktest"
	"github.com/rockpool/rockpool/test/wait"
)

// answersAt reports whether an address of the machine answers.
func answersAt(address string) bool {
	conn, err := net.DialTimeout("tcp", address, wait.Limit)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(wait.Limit))
	n, _ := conn.Read(make([]byte, 16))
	return n > 0
}

// networksLeft returns links and tables of runners.
func networksLeft(t *testing.T) (left []string) {
	t.Helper()
	left = doctor.RunnersLinks()
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	tables, err := conn.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		if strings.HasPrefix(table.Name, "rockpool-") {
			left = append(left, "table "+table.Name)
		}
	}
	return left
}

// TestE2ENetwork follows runners with a network through the API, from start to end. The server is
// killed in between.
func TestE2ENetwork(t *testing.T) {
	if !networktest.Alone(t) {
		return
	}
	around, err := world.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer around.Close()
	for name, value := range map[string]string{"ROCKPOOL_NETWORK": "true", "ROCKPOOL_NETWORK_RESOLVER": around.Names, "ROCKPOOL_NETWORK_PORTS": "20000-20099", "ROCKPOOL_NETWORK_BANDWIDTH": "200"} {
		t.Setenv(name, value)
	}
	p := bed.ServeBinary(t, bed.DataDir(t))
	put := func(n object) {
		t.Helper()
		p.Call(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`, object{"in": object{"id": "net", "poolSize": 1, "network": n}}, nil)
	}
	narrow := object{"access": true, "allow": []string{world.Public6 + "/128"}, "allowNames": []string{"public.example", "lan.example"}, "bandwidthMbit": 20, "exposedPorts": []int{8000, 8001}}
	narrowly := map[string]bool{
		"tcp/public.example:7777": true, "udp/public.example:7777": true, "tcp/[" + world.Public6 + "]:7777": true,
		"tcp/lan.example:7777": false, "tcp/other.example:7777": false, "tcp/" + world.Other4 + ":7777": false, "udp/" + world.Resolver + ":53": false,
		"tcp/" + world.LAN4 + ":7777": false, "tcp/[" + world.LAN6 + "]:7777": false, "tcp/" + world.Metadata + ":7777": false,
		"tcp/" + world.Machine4 + ":7777": false, "tcp/[" + world.Machine6 + "]:7777": false, "tcp/10.213.0.1:7777": false,
	}
	put(narrow)
	first := connect(t, p, "net")
	first.WantReachable(t, narrowly)
	serving := func(c *Connected) {
		t.Helper()
		c.Start(t, object{"runnerId": c.ID, "command": []string{"./prober", "serve", "8000", "300"}, "timeLimit": 0})
		wait.For(t, "its exposed port is reached", func() bool { return answersAt(c.Ports[8000]) })
	}
	if len(first.Ports) != 2 || !strings.HasPrefix(first.Ports[8000], "127.0.0.1:20") || !strings.HasPrefix(first.Ports[8001], "127.0.0.1:20") {
		t.Fatalf("its ports are at %v", first.Ports)
	}
	serving(first)
	if answersAt(first.Ports[8001]) {
		t.Error("a port without a listener answers")
	}
	if r := first.Shell(t, first.ID, "./prober rate flood "+world.Public4+":7777 2097152"); !strings.HasPrefix(r.Stream("STDOUT"), "flood slow") {
		t.Errorf("2 MiB at 20 Mbit/s: %q", r.Stream("STDOUT"))
	}

	t.Run("another policy", func(t *testing.T) { // replaces idle runners
		put(object{"access": true, "allow": []string{}, "allowNames": []string{}, "bandwidthMbit": 0, "exposedPorts": []int{}})
		open := connect(t, p, "net")
		openly := map[string]bool{"tcp/" + world.Other4 + ":7777": true, "tcp/public.example:7777": true, "tcp/lan.example:7777": false, "tcp/" + world.LAN4 + ":7777": false, "tcp/" + world.Machine4 + ":7777": false}
		open.WantReachable(t, openly)
		if len(open.Ports) != 0 {
			t.Errorf("its ports are at %v", open.Ports)
		}
		first.WantReachable(t, narrowly) // claimed runners keep their policy
		link := open.Link()
		if !linked(link) {
			t.Errorf("it has no link %s", link)
		}
		p.Call(t, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": open.ID}, nil)
		wait.For(t, "its link is gone with it", func() bool { return !linked(link) })
	})

	put(narrow)
	bared := connect(t, p, "net")
	was := first.Ports[8000]
	p.End(t, syscall.SIGKILL, false)
	if answersAt(was) {
		t.Error("a port is mapped without a server")
	}
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	conn.DelTable(&nftables.Table{Family: nftables.TableFamilyNetdev, Name: "rockpool-" + bared.Link()})
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	p = bed.ServeBinary(t, p.Data)
	first.Process, bared.Process = p, p
	wait.For(t, "the runner that lost its packet filter is gone", func() bool { return bared.Inspect(t) != string(runtime.RunnerClaimed) })
	wait.For(t, "its port is mapped again", func() bool { return answersAt(was) }) // to the program that was there
	if state := first.Inspect(t); state != string(runtime.RunnerClaimed) || first.Ports[8000] != was {
		t.Errorf("after a restart it is %s, its ports at %v, not %s", state, first.Ports, was)
	}
	first.WantReachable(t, narrowly)

	p.Call(t, `mutation { deleteEnvironment(input: {id: "net", endClaimed: true}) { deleted } }`, nil, nil)
	wait.For(t, "links and tables are gone with the environment", func() bool { return len(networksLeft(t)) == 0 })
	wait.For(t, "its port is closed", func() bool {
		conn, err := net.Dial("tcp", was)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	p.Finish(t)
	if left := networksLeft(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func linked(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}
