package clients

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/chaos/house"
	"github.com/rockpool/rockpool/test/chaos/moment"
)

// slots is the number of small runners that fit the machine. Their size is computed from the
// machine's memory, so that the number is the same everywhere.
const slots = 14

// A Crowd is a client that changes environments continuously. They never all fit, so that runners
// are made, wait and are removed.
type Crowd struct {
	*Holder
	size int
}

// NewCrowd returns a crowd whose random numbers follow from two seeds.
func NewCrowd(h *house.House, t *moment.Timing, name string, seed1, seed2 uint64) *Crowd {
	return &Crowd{Holder: NewHolder(h, t, name, seed1, seed2)}
}

// PutEnvironments puts the environments of the run, and sets the pools of the server's first ones
// to 0.
func PutEnvironments(ctx context.Context, h *house.House) error {
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
		if err := client.Put(ctx, h.Patient, client.PutEnvironmentInput{Id: env.Id, PoolSize: new(int)}); err != nil {
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
		if h.Nomad != nil {
			in.Resources.CpuMHz = new(50)
			if h.Nomad.Driver == "docker" {
				in.Image = new(house.Image)
			} else {
				in.Isolation = new(runtime.IsolationNone) // raw_exec isolates nothing
			}
			if env.id == forHolders { // its runners take a second longer to start
				in.PoolSize = new(5)
			}
		}
		if err := client.Put(ctx, h.Patient, in); err != nil {
			return err
		}
	}
	return nil
}

// crowdOf returns the size of a crowd: smaller on Nomad, which makes runners more slowly.
func crowdOf(h *house.House, size int) int {
	if h.Nomad != nil {
		return (size + 3) / 4
	}
	return size
}

// Live changes environments until the run is over, then empties the crowd's pools.
func (c *Crowd) Live(ctx context.Context, until <-chan struct{}) {
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
		case 0, 1: // more than fit
			c.resize(ctx, 5+c.random.IntN(40))
		case 2:
			c.resize(ctx, c.random.IntN(3))
		case 3: // and back, before all requested runners exist
			c.resize(ctx, 20+c.random.IntN(25))
			moment.Pause(ctx, time.Duration(c.random.IntN(40))*time.Millisecond)
			c.resize(ctx, 0)
		case 4: // replaces idle runners by ones of another revision
			c.change(ctx, client.PutEnvironmentInput{Id: crowds[0], Variables: []client.VariableInput{{Name: "TURN", Value: c.key()}}})
		case 5:
			c.visit(ctx, forGuests)
		case 6, 7:
			c.takeTurns(ctx)
		case 8, 9:
			c.stampede(ctx)
		}
		moment.Pause(ctx, time.Duration(100+c.random.IntN(500))*time.Millisecond)
	}
}

// resize sets the pool of the first crowd, scaled for Nomad.
func (c *Crowd) resize(ctx context.Context, size int) {
	c.size = crowdOf(c.House, size)
	c.change(ctx, client.PutEnvironmentInput{Id: crowds[0], PoolSize: &c.size})
}

// change puts an environment and judges a refusal.
func (c *Crowd) change(ctx context.Context, in client.PutEnvironmentInput) {
	defer c.timing.Begin(moment.Change)()
	if err := client.Put(ctx, c.Patient, in); err != nil {
		c.Refused(ctx, "change an environment", err)
	}
}

// visit claims a runner that must be made first: it takes precedence over the crowd's.
func (c *Crowd) visit(ctx context.Context, environment string) {
	if runner := c.claim(ctx, environment, 2); runner != "" {
		c.release(ctx, runner)
	}
}

// visitors makes n visits, with this time between their beginnings.
func (c *Crowd) visitors(ctx context.Context, n int, environment string, apart time.Duration) *sync.WaitGroup {
	all := &sync.WaitGroup{}
	for i := range n {
		one := NewCrowd(c.House, c.timing, c.key(), c.random.Uint64(), 0)
		all.Go(func() {
			moment.Pause(ctx, time.Duration(i)*apart)
			one.visit(ctx, environment)
		})
	}
	return all
}

// stampede makes all crowds request more than fits, in a moment when some capacity is free: several
// workers see the same free capacity.
func (c *Crowd) stampede(ctx context.Context) {
	defer c.timing.Begin(moment.Change)()
	CrowdIn(ctx, c.House, 0)
	moment.Pause(ctx, time.Duration(100+c.random.IntN(200))*time.Millisecond) // until most of them are removed
	CrowdIn(ctx, c.House, 20+c.random.IntN(30))
	moment.Pause(ctx, time.Duration(c.random.IntN(150))*time.Millisecond)
	CrowdIn(ctx, c.House, 0)
}

// takeTurns claims a runner as large as many small ones, so that the crowd waits for its release.
// Just then it sends visitors, which take the capacity that the crowd was promised.
func (c *Crowd) takeTurns(ctx context.Context) {
	c.resize(ctx, 3)
	hall := c.claim(ctx, forHall, 5)
	if hall == "" {
		return
	}
	c.resize(ctx, 40)
	moment.Pause(ctx, 100*time.Millisecond)
	guests := c.visitors(ctx, 5, forGuests, 4*time.Millisecond)
	c.release(ctx, hall)
	guests.Wait()
}

// CrowdIn sets the size of every crowd with one call each, and waits for the answers, if a server
// answers.
func CrowdIn(ctx context.Context, h *house.House, size int) {
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
