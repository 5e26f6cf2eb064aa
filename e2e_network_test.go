package main

import (
	"bytes"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"

	"github.com/rockpool/rockpool/doctor"
	"github.com/rockpool/rockpool/doctor/attack"
	"github.com/rockpool/rockpool/doctor/attack/world"
	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/network/networktest"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/wait"
)

// A connected is a runner with a network, and the prober in it.
type connected struct {
	*process
	id    string
	ports map[int]string // where they are reached
}

// connect claims a runner and puts the prober into it.
func (p *process) connect(t *testing.T, environment string) *connected {
	t.Helper()
	c := &connected{process: p, id: p.claimLoosely(t, environment)}
	program, err := attack.Prober()
	if err != nil {
		t.Fatal(err)
	}
	err = p.Upload(t.Context(), `mutation($id: ID!, $file: Upload!) { uploadFile(runnerId: $id, path: "prober", file: $file, mode: "0755") { file { size } } }`,
		object{"id": c.id}, int64(len(program)), bytes.NewReader(program), nil)
	if err != nil {
		t.Fatal(err)
	}
	c.look(t)
	return c
}

// look reads where the runner's ports are, and returns its state.
func (c *connected) look(t *testing.T) (state string) {
	t.Helper()
	var out struct {
		Runner struct {
			State string
			Ports []struct {
				ExposedPort int
				Address     string
			}
		}
	}
	c.call(t, `query($id: ID!) { runner(id: $id) { state ports { exposedPort address } } }`, object{"id": c.id}, &out)
	c.ports = map[int]string{}
	for _, p := range out.Runner.Ports {
		c.ports[p.ExposedPort] = p.Address
	}
	return out.Runner.State
}

// finds has the runner ask at each place ("tcp/20.0.0.2:7777"), and fails the test
// unless those that are true answer, and the others don't.
func (c *connected) finds(t *testing.T, places map[string]bool) {
	t.Helper()
	command := []string{"./prober", "ask"}
	for place := range places {
		command = append(command, place)
	}
	r := c.run(t, object{"runnerId": c.id, "command": command})
	lines := strings.Split(strings.TrimSpace(r.stream("STDOUT")), "\n")
	if len(lines) != len(places) {
		t.Fatalf("%+v", r)
	}
	for i, place := range command[2:] {
		if strings.HasSuffix(lines[i], " answered") != places[place] {
			t.Errorf("at %s: %s", place, lines[i])
		}
	}
}

// link is the name of the runner's link, and in that of its table.
func (c *connected) link() string { return network.Name("/" + c.cgroups + "/" + c.id) }

// answersAt reports whether something does at an address of the machine's.
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

// TestE2ENetwork is one life of runners with a network, seen through the API, with
// a server that is killed in between.
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
	p := serveBinary(t, dataDir(t))
	put := func(n object) {
		t.Helper()
		p.call(t, `mutation($in: PutEnvironmentInput!) { putEnvironment(input: $in) { created } }`, object{"in": object{"id": "net", "poolSize": 1, "network": n}}, nil)
	}
	narrow := object{"access": true, "allow": []string{world.Public6 + "/128"}, "allowNames": []string{"public.example", "lan.example"}, "bandwidthMbit": 20, "exposedPorts": []int{8000, 8001}}
	narrowly := map[string]bool{
		"tcp/public.example:7777": true, "udp/public.example:7777": true, "tcp/[" + world.Public6 + "]:7777": true,
		"tcp/lan.example:7777": false, "tcp/other.example:7777": false, "tcp/" + world.Other4 + ":7777": false, "udp/" + world.Resolver + ":53": false,
		"tcp/" + world.LAN4 + ":7777": false, "tcp/[" + world.LAN6 + "]:7777": false, "tcp/" + world.Metadata + ":7777": false,
		"tcp/" + world.Machine4 + ":7777": false, "tcp/[" + world.Machine6 + "]:7777": false, "tcp/10.213.0.1:7777": false,
	}
	put(narrow)
	first := p.connect(t, "net")
	first.finds(t, narrowly)
	serving := func(c *connected) {
		t.Helper()
		c.start(t, object{"runnerId": c.id, "command": []string{"./prober", "serve", "8000", "300"}, "timeLimit": 0})
		wait.For(t, "its exposed port is reached", func() bool { return answersAt(c.ports[8000]) })
	}
	if len(first.ports) != 2 || !strings.HasPrefix(first.ports[8000], "127.0.0.1:20") || !strings.HasPrefix(first.ports[8001], "127.0.0.1:20") {
		t.Fatalf("its ports are at %v", first.ports)
	}
	serving(first)
	if answersAt(first.ports[8001]) {
		t.Error("something answers at a port that nobody listens at")
	}
	if r := first.shell(t, first.id, "./prober rate flood "+world.Public4+":7777 2097152"); !strings.HasPrefix(r.stream("STDOUT"), "flood slow") {
		t.Errorf("2 MiB at 20 Mbit/s: %q", r.stream("STDOUT"))
	}

	t.Run("another policy", func(t *testing.T) { // replaces who is idle
		put(object{"access": true, "allow": []string{}, "allowNames": []string{}, "bandwidthMbit": 0, "exposedPorts": []int{}})
		open := p.connect(t, "net")
		openly := map[string]bool{"tcp/" + world.Other4 + ":7777": true, "tcp/public.example:7777": true, "tcp/lan.example:7777": false, "tcp/" + world.LAN4 + ":7777": false, "tcp/" + world.Machine4 + ":7777": false}
		open.finds(t, openly)
		if len(open.ports) != 0 {
			t.Errorf("its ports are at %v", open.ports)
		}
		first.finds(t, narrowly) // whom somebody holds keeps what it has
		link := open.link()
		if !linked(link) {
			t.Errorf("it has no link %s", link)
		}
		p.call(t, `mutation($id: ID!) { releaseRunner(id: $id) { released } }`, object{"id": open.id}, nil)
		wait.For(t, "its link is gone with it", func() bool { return !linked(link) })
	})

	put(narrow)
	bared := p.connect(t, "net")
	was := first.ports[8000]
	p.end(t, syscall.SIGKILL, false)
	if answersAt(was) {
		t.Error("a port is mapped without a server")
	}
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	conn.DelTable(&nftables.Table{Family: nftables.TableFamilyNetdev, Name: "rockpool-" + bared.link()})
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
	p = serveBinary(t, p.data)
	first.process, bared.process = p, p
	wait.For(t, "the runner that lost its packet filter is gone", func() bool { return bared.look(t) != string(runtime.RunnerClaimed) })
	wait.For(t, "its port is mapped again", func() bool { return answersAt(was) }) // to the program that was there
	if state := first.look(t); state != string(runtime.RunnerClaimed) || first.ports[8000] != was {
		t.Errorf("after a restart it is %s, its ports at %v, not %s", state, first.ports, was)
	}
	first.finds(t, narrowly)

	p.call(t, `mutation { deleteEnvironment(input: {id: "net", endClaimed: true}) { deleted } }`, nil, nil)
	wait.For(t, "links and tables are gone with the environment", func() bool { return len(networksLeft(t)) == 0 })
	wait.For(t, "its port is closed", func() bool {
		conn, err := net.Dial("tcp", was)
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	p.finish(t)
	if left := networksLeft(t); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func linked(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}
