// Package clients has the clients of servers that are killed repeatedly. Holders claim runners and
// run programs; crowds change environments. Both report all answers to the ledger, which judges
// them.
package clients

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rockpool/rockpool/client"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/test/chaos/house"
	"github.com/rockpool/rockpool/test/chaos/ledger"
	"github.com/rockpool/rockpool/test/chaos/moment"
)

// The environments of a run. Together they request more than fits, so that runners wait for each
// other.
const (
	forHolders = "work"   // holders claim its runners
	forGuests  = "demand" // without idle runners: each claim makes one, and takes capacity from the others
	forHall    = "hall"   // one of its runners takes half of the machine
)

// crowds grow and shrink, the first one continuously.
var crowds = []string{"crowd", "crowd-2", "crowd-3", "crowd-4"}

// A Holder is a client that claims runners in sequence, uses and releases them. All its choices
// follow from its own random numbers.
type Holder struct {
	*house.House
	name   string
	random *rand.Rand
	timing *moment.Timing
	serial int
}

// NewHolder returns a holder whose random numbers follow from two seeds.
func NewHolder(h *house.House, t *moment.Timing, name string, seed1, seed2 uint64) *Holder {
	return &Holder{House: h, timing: t, name: name, random: rand.New(rand.NewPCG(seed1, seed2))}
}

// Live claims runners until it is time to stop, and releases the last one.
func (c *Holder) Live(ctx context.Context, until <-chan struct{}) {
	for {
		select {
		case <-until:
			return
		case <-ctx.Done():
			return
		default:
		}
		if runner := c.claim(ctx, forHolders, 15); runner != "" {
			c.use(ctx, runner)
		} else {
			moment.Pause(ctx, 50*time.Millisecond)
		}
	}
}

// key returns a new idempotency key.
func (c *Holder) key() string {
	c.serial++
	return fmt.Sprintf("%s-%d", c.name, c.serial)
}

// claim retries until it has a runner, or a server answers that there is none. Then it returns "".
func (c *Holder) claim(ctx context.Context, environment string, waitFor int) string {
	defer c.timing.Begin(moment.Claim)()
	key, asked := c.key(), time.Now()
	runner, err := client.Claim(ctx, c.Patient, client.ClaimRunnerInput{
		EnvironmentId: environment, WaitFor: &waitFor, InactivityTimeout: new(900), IdempotencyKey: &key,
	})
	switch code := house.CodeOf(err); {
	case err == nil:
		c.Ledger.Claimed(key, runner)
	case code == runtime.CodeNoRunnerAvailable:
		c.Ledger.Count(ledger.NoRunner, 1)
	case code == runtime.CodeRunnerGone && c.Ledger.HarmedSince(asked): // a response was lost, then the runner
	default:
		c.Refused(ctx, "claim "+key, err)
	}
	return runner
}

// use runs programs in a runner and releases it.
func (c *Holder) use(ctx context.Context, runner string) {
	// An earlier holder would have left this mark.
	_, code, ok := c.probe(ctx, runner, "mkdir /workspace/held || exit 98")
	if ok && code == 98 {
		c.Ledger.Wrong(ledger.ReusedRunners, 1, "runner %s had been used before", runner)
	}
	var own, left sync.WaitGroup // programs that end before the release, and programs that end by it
	f := newFile(c, runner)
	for range 1 + c.random.IntN(6) {
		if !ok || ctx.Err() != nil || c.Ledger.WasHarmed(runner) && c.random.IntN(2) == 0 {
			break
		}
		switch c.random.IntN(8) {
		case 0, 1, 2, 3:
			p := ledger.NewProgram(c.random, c.key())
			group := &own
			if p.Ends == ledger.EndsByLeave {
				group = &left
			}
			w := &watcher{House: c.House, timing: c.timing, random: rand.New(rand.NewPCG(c.random.Uint64(), 0))}
			group.Go(func() { w.run(ctx, runner, p) })
		case 4, 5:
			f.upload(ctx)
			f.check(ctx)
		case 6:
			f.check(ctx)
		case 7:
			c.checkHeld(ctx, runner)
		}
		moment.Pause(ctx, time.Duration(c.random.IntN(400))*time.Millisecond)
	}
	own.Wait()
	f.check(ctx)
	c.checkHeld(ctx, runner)
	c.release(ctx, runner)
	left.Wait()
}

// checkHeld checks that the runner still belongs to this holder.
func (c *Holder) checkHeld(ctx context.Context, runner string) {
	out, err := client.GetRunner(ctx, c.Patient, runner)
	if err != nil {
		c.Refused(ctx, "look at runner "+runner, err)
		return
	}
	if out.Runner == nil || out.Runner.State != runtime.RunnerClaimed || out.Runner.Claim == nil {
		c.Ledger.Gone(runner)
	}
}

// release records the release in the ledger before the call: even if the answer is lost, the runner
// may be gone.
func (c *Holder) release(ctx context.Context, runner string) {
	defer c.timing.Begin(moment.Release)()
	c.Ledger.Release(runner)
	if err := client.Release(ctx, c.Patient, runner); err != nil {
		c.Refused(ctx, "release runner "+runner, err)
	}
}

// probe runs a small script to its end. ok is false if the runner is gone.
func (c *Holder) probe(ctx context.Context, runner, script string) (text string, code int, ok bool) {
	execution, err := client.Start(ctx, c.Patient, client.StartExecutionInput{RunnerId: runner, Shell: &script, IdempotencyKey: new(c.key())})
	if err != nil {
		goneOr(ctx, c.House, runner, "start a probe", err)
		return "", 0, false
	}
	began := time.Now()
	for ctx.Err() == nil {
		out, err := client.GetResult(ctx, c.Patient, execution, 20, 1<<20)
		if err != nil {
			goneOr(ctx, c.House, runner, "await a probe", err)
			return "", 0, false
		}
		switch x := out.Execution; {
		case x.State != runtime.ExecutionFinished && time.Since(began) > house.InsistWithin:
			c.Ledger.Wrong(ledger.Unfinished, 1, "a probe in runner %s is %s after %s", runner, x.State, house.InsistWithin)
			return "", 0, false
		case x.State != runtime.ExecutionFinished:
		case x.Output.LostBytes > 0 && c.Ledger.WasFull(began): // its output was lost on the full disk
			return "", 0, false
		case x.Outcome == runtime.OutcomeExited && x.ExitCode != nil:
			return x.Text(), *x.ExitCode, true
		case x.Outcome == runtime.OutcomeRunnerGone || x.Outcome == runtime.OutcomeLost:
			c.Ledger.Gone(runner)
			return "", 0, false
		default:
			c.Ledger.Wrong(ledger.MadeUp, 1, "a probe in runner %s ended as %s: %s", runner, x.Outcome, x.Message)
			return "", 0, false
		}
	}
	return "", 0, false
}

// goneOr judges an error: either the runner is gone, or the error needs another reason.
func goneOr(ctx context.Context, h *house.House, runner, what string, err error) {
	if house.CodeOf(err) == runtime.CodeRunnerGone {
		h.Ledger.Gone(runner)
	} else {
		h.Refused(ctx, what+" in runner "+runner, err)
	}
}
