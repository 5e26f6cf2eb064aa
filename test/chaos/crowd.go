package main

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
)

// slots is how many small runners have room on the machine: what they are
// promised is reckoned from its memory, so that this is so everywhere.
const slots = 14

// A crowd is a client that changes environments all the time, so that there is
// never room for all, and runners are made, wait and go.
type crowd struct {
	*holder
	size int
}

// newCrowd returns one whose random numbers follow from two seeds.
func newCrowd(h *house, t *timing, name string, seed1, seed2 uint64) *crowd {
	return &crowd{holder: newHolder(h, t, name, seed1, seed2)}
}

// putEnvironments makes the environments of the run, and has the first ones of
// the server keep no runners.
func putEnvironments(ctx context.Context, h *house) error {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return err
	}
	slot := int(int64(info.Totalram)*int64(info.Unit)>>20) / slots
	first, err := client.GetEnvironments(ctx, h)
	if err != nil {
		return err
	}
	for _, env := range first.Environments {
		if err := client.Put(ctx, h.patient, client.PutEnvironmentInput{Id: env.Id, PoolSize: new(int)}); err != nil {
			return err
		}
	}
	for _, env := range []struct {
		id    string
		size  int
		slots int
	}{{forHolders, 2, 1}, {forGuests, 0, 3}, {forHall, 0, slots / 2}, {crowds[0], 1, 1}, {crowds[1], 0, 1}, {crowds[2], 0, 1}, {crowds[3], 0, 1}} {
		in := client.PutEnvironmentInput{Id: env.id, PoolSize: &env.size, Resources: &client.ResourcesInput{
			MemoryMiB: new(max(64, env.slots*slot-1)), Processes: new(64), WorkspaceMiB: new(32),
		}}
		if h.nomad != nil { // with the driver raw_exec, which isolates nothing
			in.Isolation, in.Resources.CpuMHz = new(runtime.IsolationNone), new(50)
			if env.id == forHolders { // whose runners take a second longer to come
				in.PoolSize = new(5)
			}
		}
		if err := client.Put(ctx, h.patient, in); err != nil {
			return err
		}
	}
	return nil
}

// crowdOf is how large a crowd is where Nomad makes it, which takes its time.
func crowdOf(h *house, size int) int {
	if h.nomad != nil {
		return (size + 3) / 4
	}
	return size
}

// live changes environments until it is over, and leaves none of the crowd.
func (c *crowd) live(ctx context.Context, until <-chan struct{}) {
	for {
		select {
		case <-until:
			for _, id := range crowds {
				c.change(ctx, client.PutEnvironmentInput{Id: id, PoolSize: new(int)})
			}
			return
		case <-ctx.Done():
			return
		default:
		}
		switch c.random.IntN(10) {
		case 0, 1: // more than there is room for
			c.resize(ctx, 5+c.random.IntN(40))
		case 2:
			c.resize(ctx, c.random.IntN(3))
		case 3: // and back, before all that was wished for has come
			c.resize(ctx, 20+c.random.IntN(25))
			pause(ctx, time.Duration(c.random.IntN(40))*time.Millisecond)
			c.resize(ctx, 0)
		case 4: // idle runners of another revision are replaced
			c.change(ctx, client.PutEnvironmentInput{Id: crowds[0], Variables: []client.VariableInput{{Name: "TURN", Value: c.key()}}})
		case 5:
			c.visit(ctx, forGuests)
		case 6, 7:
			c.takeTurns(ctx)
		case 8, 9:
			c.stampede(ctx)
		}
		pause(ctx, time.Duration(100+c.random.IntN(500))*time.Millisecond)
	}
}

func (c *crowd) resize(ctx context.Context, size int) {
	c.size = crowdOf(c.house, size)
	c.change(ctx, client.PutEnvironmentInput{Id: crowds[0], PoolSize: &c.size})
}

func (c *crowd) change(ctx context.Context, in client.PutEnvironmentInput) {
	defer c.timing.begin(atChange)()
	if err := client.Put(ctx, c.patient, in); err != nil {
		c.refused(ctx, "change an environment", err)
	}
}

// visit claims a runner that isn't there yet: it goes before the crowd's.
func (c *crowd) visit(ctx context.Context, environment string) {
	if runner := c.claim(ctx, environment, 2); runner != "" {
		c.release(ctx, runner)
	}
}

// visitors come one after the other, so long apart.
func (c *crowd) visitors(ctx context.Context, n int, environment string, apart time.Duration) *sync.WaitGroup {
	all := &sync.WaitGroup{}
	for i := range n {
		one := newCrowd(c.house, c.timing, c.key(), c.random.Uint64(), 0)
		all.Go(func() {
			pause(ctx, time.Duration(i)*apart)
			one.visit(ctx, environment)
		})
	}
	return all
}

// stampede has all crowds want more than there is room for, when there is some:
// several workers see the same room.
func (c *crowd) stampede(ctx context.Context) {
	defer c.timing.begin(atChange)()
	crowdIn(ctx, c.house, 0)
	pause(ctx, time.Duration(100+c.random.IntN(200))*time.Millisecond) // until they are gone, mostly
	crowdIn(ctx, c.house, 20+c.random.IntN(30))
	pause(ctx, time.Duration(c.random.IntN(150))*time.Millisecond)
	crowdIn(ctx, c.house, 0)
}

// takeTurns claims a runner as large as many, for which the crowd waits when it
// is gone, and sends guests in just then: what was promised to the crowd is
// taken from it.
func (c *crowd) takeTurns(ctx context.Context) {
	c.resize(ctx, 3)
	hall := c.claim(ctx, forHall, 5)
	if hall == "" {
		return
	}
	c.resize(ctx, 40)
	pause(ctx, 100*time.Millisecond)
	guests := c.visitors(ctx, 5, forGuests, 4*time.Millisecond)
	c.release(ctx, hall)
	guests.Wait()
}

// crowdIn has every crowd want so many runners, with one call to each, and waits
// for the answers, if somebody gives any.
func crowdIn(ctx context.Context, h *house, size int) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var calls sync.WaitGroup
	for _, id := range crowds {
		calls.Go(func() {
			_ = client.Put(ctx, h, client.PutEnvironmentInput{Id: id, PoolSize: new(crowdOf(h, size))})
		})
	}
	calls.Wait()
}
