package connection

import (
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/rockpool/rockpool/test/nomadtest"
	"github.com/rockpool/rockpool/test/wait"
)

// A command goes to the node directly if that is enabled and possible, otherwise through the
// servers.
func TestCommandsGoDirectlyToTheNode(t *testing.T) {
	n := nomadtest.Start(t, nomadtest.Options{ACL: true, TLS: true, Namespace: "pool"})
	a := sleeper(t, n)
	ca, cert, key := n.TLS()
	config := Config{
		Address: n.Address(), Namespace: n.Namespace(), Token: n.Token(), CACert: ca, ClientCert: cert, ClientKey: key,
		DirectTimeout: time.Minute, // the longest that there is
		Calls:         16,
	}
	var g Group
	c, err := New(config, &g)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	echo := func() {
		t.Helper()
		conn, err := c.Exec(t.Context(), a.NodeID, a.ID, "runner", []string{"/bin/echo", "hi"})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if said, err := io.ReadAll(io.LimitReader(conn, 3)); err != nil || string(said) != "hi\n" {
			t.Errorf("it says %q, %v", said, err)
		}
	}
	echo()
	if address := c.addressOf(t.Context(), a.NodeID); address == nil || strings.HasSuffix(n.Address(), address.Host) {
		t.Fatalf("the node's address is %v, the server's %s", address, n.Address())
	}
	if known := c.direct.nodes[a.NodeID]; time.Until(known.until) < unreachableFor {
		t.Errorf("the node was not reached: %+v", known)
	}
	c.direct.remember(a.NodeID, &url.URL{Scheme: "https", Host: "127.0.0.1:1"}, time.Hour)
	echo()
	if c.addressOf(t.Context(), a.NodeID) != nil {
		t.Error("a node that can't be reached is tried again at once")
	}
}

// sleeper returns an allocation that runs until the test ends.
func sleeper(t *testing.T, n *nomadtest.Nomad) (running *api.AllocationListStub) {
	t.Helper()
	task := api.NewTask("runner", "raw_exec").SetConfig("command", "/bin/sleep").SetConfig("args", []string{"1000"})
	job := api.NewBatchJob("sleeper", "sleeper", "global", 50).AddTaskGroup(api.NewTaskGroup("g", 1).AddTask(task))
	job.Namespace = new(n.Namespace())
	if _, _, err := n.API().Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	wait.For(t, "its task runs", func() bool {
		all, _, err := n.API().Jobs().Allocations("sleeper", true, nil)
		if err != nil || len(all) != 1 || all[0].ClientStatus != api.AllocClientStatusRunning {
			return false
		}
		running = all[0]
		return true
	})
	return running
}
