package api

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/need"
	"github.com/rockpool/rockpool/test/wait"
)

// TestE2EStoppedRunnersDelayNoOtherTenant: while the agents of a tenant's runners don't answer, and it asks for
// their files as often as it can, lists of another tenant are answered.
func TestE2EStoppedRunnersDelayNoOtherTenant(t *testing.T) {
	need.Sandboxes(t)
	t.Parallel()
	data := bed.DataDir(t)
	groups := bed.CgroupsOf(data)
	server, _ := bed.ServeHere(t, bed.Settings(data, groups))
	var made struct{ CreateToken struct{ Secret string } }
	create := `mutation($in: CreateTokenInput!) { createToken(input: $in) { secret } }`
	server.Call(t, create, object{"in": object{"name": "admin", "role": client.RoleAdmin}}, &made)
	admin := bed.Bed{Client: client.New(server.Address).WithToken(made.CreateToken.Secret)}
	as := func(tenant string) bed.Bed {
		admin.Call(t, `mutation($id: ID!) { putTenant(input: {id: $id}) { created } }`, object{"id": tenant}, nil)
		admin.Call(t, create, object{"in": object{"name": tenant, "role": client.RoleOperator, "tenant": tenant}}, &made)
		b := bed.Bed{Client: client.New(server.Address).WithToken(made.CreateToken.Secret)}
		b.Put(t, object{"id": tenant, "poolSize": 0})
		return b
	}
	slow, other := as("slow"), as("other")
	list := `query($id: ID!) { runner(id: $id) { files { nodes { path } } } }`
	var asking sync.WaitGroup
	var late, refused atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	for range 4 {
		runner := slow.Claim(t, "slow")
		agent := bed.AgentOf(t, groups, runner)
		if err := syscall.Kill(agent, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Kill(agent, syscall.SIGCONT) }()
		for range 4 {
			asking.Go(func() {
				for ctx.Err() == nil {
					err, _ := errors.AsType[*client.Error](slow.Do(ctx, list, object{"id": runner}, nil))
					if err != nil && err.Extensions.Code == runtime.CodeClusterUnavailable {
						late.Add(1) // it had a slot
					} else if err != nil && err.Extensions.Code == runtime.CodeLimitExceeded {
						refused.Add(1)
					}
				}
			})
		}
	}
	defer asking.Wait()
	defer stop()
	wait.For(t, "the slow tenant has all slots that it gets", func() bool { return refused.Load() > 0 })
	runner := other.Claim(t, "other")
	for try := 1; ; try++ {
		before := late.Load()
		other.Call(t, list, object{"id": runner}, nil)
		if late.Load() == before {
			return // no slot became free meanwhile
		}
		if try == 5 {
			t.Fatal("another tenant's lists wait for the slow tenant's")
		}
	}
}
