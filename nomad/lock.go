package nomad

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/runtime"
)

// standbyPause is how often a standby tries whether the owner is gone.
const standbyPause = time.Second

// releaseWithin is how long the lock is seen to once the server is to end.
const releaseWithin = 2 * time.Second

// errLost says that another server may own what is Nomad's by now.
var errLost = errors.New("another server may have taken over: this one could not renew its lock in Nomad in time")

// own waits until no other server owns the prefix, and owns it until release is
// called, also after ctx. Lost ends as soon as another server could own it. The lock is one of
// Nomad's variables; its id is kept in Config.Dir, so that a server that was
// killed goes on at once when it is started again.
func (c *Cluster) own(ctx context.Context) (lost context.Context, release func(), err error) {
	variable, since, err := c.acquire(ctx)
	if err != nil {
		return nil, nil, err
	}
	lost, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	renewing, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		lose(c.renew(renewing, variable, since))
	}()
	return lost, func() {
		stop()
		<-done
		c.release(variable)
	}, nil
}

// acquire waits for the lock. It can't have begun before since.
func (c *Cluster) acquire(ctx context.Context) (held *api.Variable, since time.Time, err error) {
	wanted := &api.Variable{
		Path:  c.names.lock(),
		Items: api.VariableItems{"owner": hostname()},
		Lock:  &api.VariableLock{ID: c.lastLock(), TTL: c.config.LockTTL.String(), LockDelay: "1s"},
	}
	for {
		since = time.Now()
		held, err := c.acquireOnce(ctx, wanted)
		switch code, _ := status(err); {
		case err == nil && ctx.Err() != nil:
			c.release(held)
			return nil, since, context.Cause(ctx)
		case err == nil:
			c.problems.Resolve("lock")
			c.keepLock(held.Lock.ID)
			return held, since, nil
		case ctx.Err() != nil:
			return nil, since, context.Cause(ctx)
		case code == http.StatusConflict:
			wanted.Lock.ID = "" // it was lost meanwhile
			c.problems.Report("lock", fmt.Sprintf("another server owns %q in Nomad: this one waits to take over", c.config.Prefix))
		default:
			c.problems.Report("lock", c.explained("own "+c.config.Prefix, err).Error())
		}
		if err := sleep(ctx, standbyPause); err != nil {
			return nil, since, err
		}
	}
}

// acquireOnce tries to get the lock, for a moment longer than ctx: nobody knows
// the lock that an answer would have told which isn't heard any more, so that it
// would be in everybody's way until its TTL.
func (c *Cluster) acquireOnce(ctx context.Context, wanted *api.Variable) (*api.Variable, error) {
	calling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		_ = sleep(calling, releaseWithin)
		cancel()
	})
	defer stop()
	var lock *api.VariableLock
	err := c.attempt(calling, func(ctx context.Context) error {
		answer, _, err := c.nomad.calls.Variables().AcquireLock(wanted, writing(ctx))
		if err == nil && answer != nil {
			lock = answer.Lock
		}
		return err
	})
	if err == nil && lock == nil {
		err = errors.New("no lock came with Nomad's answer: is it 1.7 or newer?")
	}
	return &api.Variable{Path: wanted.Path, Lock: lock}, err
}

// renew renews the lock until ctx ends, or until it can't be known any more that
// it is held, and returns no later than that.
func (c *Cluster) renew(ctx context.Context, held *api.Variable, since time.Time) error {
	end := since.Add(c.config.LockTTL)
	for {
		if err := sleep(ctx, min(c.config.LockTTL/5, time.Until(end))); err != nil {
			return err
		}
		began := time.Now()
		err := c.renewOnce(ctx, held, end)
		code, _ := status(err)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			end = began.Add(c.config.LockTTL)
		case code == http.StatusConflict, !time.Now().Before(end):
			return runtime.Wrap(runtime.CodeClusterUnavailable, errLost, "this server doesn't own %q in Nomad any more", c.config.Prefix)
		default:
			c.log.Warn("the lock in Nomad could not be renewed yet", zap.Error(c.redact(err)))
		}
	}
}

func (c *Cluster) renewOnce(ctx context.Context, held *api.Variable, end time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	_, _, err := c.nomad.calls.Variables().RenewLock(held, writing(ctx))
	return err
}

// release lets a standby take over at once.
func (c *Cluster) release(held *api.Variable) {
	ctx, cancel := context.WithTimeout(context.Background(), releaseWithin)
	defer cancel()
	if _, _, err := c.nomad.calls.Variables().ReleaseLock(held, writing(ctx)); err != nil {
		c.log.Info("the lock in Nomad wasn't released; it ends by itself", zap.Error(c.redact(err)))
	}
	c.keepLock("")
}

func (c *Cluster) lockFile() string { return filepath.Join(c.config.Dir, "nomad-lock") }

// lastLock returns the lock that the last server with this directory held.
func (c *Cluster) lastLock() string {
	if c.config.Dir == "" {
		return ""
	}
	text, _ := os.ReadFile(c.lockFile())
	return strings.TrimSpace(string(text))
}

func (c *Cluster) keepLock(id string) {
	if c.config.Dir == "" {
		return
	}
	if err := os.WriteFile(c.lockFile(), []byte(id+"\n"), 0o600); err != nil {
		c.log.Warn("the lock's id can't be kept: a restart may wait for the lock to end", zap.Error(err))
	}
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}
