package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/nomad/api"
	"go.uber.org/zap"

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/nomad/job"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
	"github.com/rockpool/rockpool/runtime/health"
)

const standbyPause = time.Second

// releaseWithin bounds the calls for the lock while the server shuts down.
const releaseWithin = 2 * time.Second

// ErrLost says that another server may own the prefix. This one must stop using it immediately.
var ErrLost = errors.New("another server may have taken over: this one couldn't renew its lock in Nomad in time")

// A Lock is the lock of a prefix. The exported fields are set before its first use. Its methods are
// safe for concurrent use.
type Lock struct {
	Nomad    *connection.Client
	Prefix   string
	TTL      time.Duration // time after which a standby takes over from a dead server
	Dir      string        // keeps the lock's id, so that a killed server continues immediately after a restart; may be empty
	Logger   *zap.Logger
	Problems *health.Problems // reports why the lock isn't held
	Peer     Peer             // what other servers read about the owner while this server holds the lock
	// AwaitEnd waits until an owner's process has ended, and returns the id of its lock, or ctx's
	// cause. Without AwaitEnd, a dead owner's lock is free only after its TTL.
	AwaitEnd func(ctx context.Context, address, secret string) (id string, err error)

	id      atomic.Pointer[string]    // set when this server acquires the lock
	owner   atomic.Pointer[Peer]      // another owner that was seen
	renewed atomic.Pointer[time.Time] // when the lock was acquired or renewed last; nil while it isn't held
	losses  atomic.Int64
}

// A Peer is where a server accepts connections of other servers, and the secret that they must present.
type Peer struct{ Address, Secret string }

const lockSubject = "lock"

// ID returns the id under which this server acquired the lock, or "" before that.
func (l *Lock) ID() string {
	if id := l.id.Load(); id != nil {
		return *id
	}
	return ""
}

// Owner returns the Peer of another server that owns the lock. It is the zero Peer if this server
// owns it, or the owner is unknown.
func (l *Lock) Owner() Peer {
	if owner := l.owner.Load(); owner != nil {
		return *owner
	}
	return Peer{}
}

// LockStats are a lock's state and counts.
type LockStats struct {
	Held   bool
	Age    time.Duration // since it was acquired or renewed last
	Losses int64         // how often it was held and couldn't be renewed in time
}

// Stats returns the current values.
func (l *Lock) Stats() LockStats {
	s := LockStats{Losses: l.losses.Load()}
	if at := l.renewed.Load(); at != nil {
		s.Held, s.Age = true, max(time.Since(*at), 0)
	}
	return s
}

func (l *Lock) path() string { return job.Names{Prefix: l.Prefix}.Lock() }

// A Held is an acquired lock.
type Held struct {
	lock     *Lock
	variable *api.Variable // with the lock's id
	since    time.Time     // before the lock's TTL began
}

// Acquire waits until no other server has the lock, and acquires it. The caller must call Renew
// immediately and Release at the end.
func (l *Lock) Acquire(ctx context.Context) (*Held, error) {
	host, _ := os.Hostname() // the lock shows it to people as its owner
	wanted := &api.Variable{
		Path:  l.path(),
		Items: api.VariableItems{"owner": cmp.Or(host, "unknown"), "peer": l.Peer.Address, "secret": l.Peer.Secret},
		Lock:  &api.VariableLock{ID: l.lastID(), TTL: l.TTL.String(), LockDelay: "1s"},
	}
	ended := ownerWatch{lock: l}
	defer ended.stop()
	for {
		// The TTL counts from Nomad's receipt of the call, so this time is never later than its
		// beginning.
		since := time.Now()
		variable, err := l.acquireOnce(ctx, wanted)
		held := &Held{l, variable, since}
		switch code, _ := connection.Status(err); {
		// The lock was acquired after the caller gave up. Without a release it would block every
		// server until its TTL.
		case err == nil && ctx.Err() != nil:
			held.Release()
			return nil, context.Cause(ctx)
		case err == nil:
			l.owner.Store(&Peer{})
			l.id.Store(&variable.Lock.ID)
			l.renewed.Store(&since)
			l.Problems.Resolve(lockSubject)
			l.keepID(variable.Lock.ID)
			return held, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case code == http.StatusConflict:
			wanted.Lock.ID = "" // the kept lock has expired
			if owner, err := l.readOwner(ctx); err == nil {
				l.owner.Store(&owner)
				ended.watch(ctx, owner)
			}
			l.Problems.Report(lockSubject, fmt.Sprintf("another server owns %q in Nomad: this one waits to take over", l.Prefix))
		default:
			l.Problems.Report(lockSubject, l.Nomad.Explain("own "+l.Prefix, err).Error())
		}
		if ended.id != "" {
			ended.release(ctx) // again, if an earlier release failed
		}
		select {
		case ended.id = <-ended.ended:
			ended.release(ctx)
		case <-time.After(standbyPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// An ownerWatch waits for the end of the owner's process, while its lock is being tried periodically.
type ownerWatch struct {
	lock  *Lock
	of    Peer
	ended chan string // receives the id of the owner's lock; a new one for each owner
	end   context.CancelFunc
	id    string // the lock of an owner that has ended, or "" until then
}

func (v *ownerWatch) watch(ctx context.Context, owner Peer) {
	if v.lock.AwaitEnd == nil || owner == v.of {
		return
	}
	v.stop()
	v.of, v.ended, v.id = owner, make(chan string, 1), ""
	if owner.Address == "" {
		return
	}
	ctx, v.end = context.WithCancel(ctx)
	ended := v.ended
	go func() { // ends when ctx does
		if id, err := v.lock.AwaitEnd(ctx, owner.Address, owner.Secret); err == nil {
			ended <- id
		}
	}()
}

// release releases the lock of an owner that has ended. The owner's next process may hold the lock
// under the same id, but has another secret.
func (v *ownerWatch) release(ctx context.Context) {
	now, err := v.lock.readOwner(ctx)
	if err != nil || now != v.of {
		return
	}
	v.lock.Logger.Warn("the server that led has ended without releasing its lock: releasing it, so that another server can lead")
	(&Held{lock: v.lock, variable: &api.Variable{Path: v.lock.path(), Lock: &api.VariableLock{ID: v.id}}}).release()
}

// stop ends the wait for the present owner. It doesn't wait for the goroutine.
func (v *ownerWatch) stop() {
	if v.end != nil {
		v.end()
	}
}

// readOwner returns the zero Peer if there is no owner, or it accepts no connections of other servers.
func (l *Lock) readOwner(ctx context.Context) (peer Peer, err error) {
	err = l.Nomad.Attempt(ctx, func(ctx context.Context) error {
		v, _, err := l.Nomad.API().Variables().Peek(l.path(), connection.Query(ctx))
		if err == nil && v != nil && v.Lock != nil {
			peer = Peer{v.Items["peer"], v.Items["secret"]}
		}
		return err
	})
	return peer, err
}

// acquireOnce tries to acquire the lock. It waits for the answer slightly longer than ctx. If the
// answer isn't read, the lock's id is unknown, and the lock would block every server until its TTL.
func (l *Lock) acquireOnce(ctx context.Context, wanted *api.Variable) (*api.Variable, error) {
	calling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(releaseWithin, cancel) })
	defer stop()
	var lock *api.VariableLock
	err := l.Nomad.Attempt(calling, func(ctx context.Context) error {
		answer, _, err := l.Nomad.API().Variables().AcquireLock(wanted, connection.Writing(ctx))
		if err == nil && answer != nil {
			lock = answer.Lock
		}
		return err
	})
	if err == nil && lock == nil {
		err = errors.New("the answer of Nomad contains no lock: check that Nomad is version 1.7 or newer")
	}
	return &api.Variable{Path: wanted.Path, Lock: lock}, err
}

// Renew renews the lock until ctx ends or the lock may have expired. In the second case it returns
// ErrLost before another server can acquire the lock.
func (h *Held) Renew(ctx context.Context) error {
	ttl := h.lock.TTL
	end := h.since.Add(ttl)
	for {
		// Several renewals can fail before the lock may have expired.
		if err := backoff.Sleep(ctx, min(ttl/5, time.Until(end))); err != nil {
			return err
		}
		// The new TTL begins after this, so counting from here never overestimates it.
		began := time.Now()
		calling, cancel := context.WithDeadline(ctx, end)
		_, _, err := h.lock.Nomad.API().Variables().RenewLock(h.variable, connection.Writing(calling))
		cancel()
		code, _ := connection.Status(err)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			end = began.Add(ttl)
			h.lock.renewed.Store(&began)
		case code == http.StatusConflict, !time.Now().Before(end):
			h.lock.renewed.Store(nil)
			h.lock.losses.Add(1)
			return runtime.Wrap(runtime.CodeClusterUnavailable, ErrLost, "this server no longer owns %q in Nomad", h.lock.Prefix)
		default:
			h.lock.Logger.Warn("the lock in Nomad couldn't be renewed; retrying", zap.Error(h.lock.Nomad.Redact(err)))
		}
	}
}

// Release releases the lock, so that a standby can take over immediately. Call it once, after Renew
// has returned.
func (h *Held) Release() {
	h.release()
	h.lock.keepID("")
}

// release releases the lock in Nomad. It has a deadline of its own, since the server may be ending.
func (h *Held) release() {
	h.lock.renewed.Store(nil)
	ctx, cancel := context.WithTimeout(context.Background(), releaseWithin)
	defer cancel()
	if _, _, err := h.lock.Nomad.API().Variables().ReleaseLock(h.variable, connection.Writing(ctx)); err != nil {
		h.lock.Logger.Info("the lock in Nomad couldn't be released; it expires after its TTL", zap.Error(h.lock.Nomad.Redact(err)))
	}
}

func (l *Lock) file() string { return filepath.Join(l.Dir, "nomad-lock") }

func (l *Lock) lastID() string {
	if l.Dir == "" {
		return ""
	}
	text, _ := os.ReadFile(l.file())
	return strings.TrimSpace(string(text))
}

// keepID stores the lock's id, or an empty one, for the next server. A failure is only logged.
func (l *Lock) keepID(id string) {
	if l.Dir == "" {
		return
	}
	if err := os.WriteFile(l.file(), []byte(id+"\n"), 0o600); err != nil {
		l.Logger.Warn("the lock's id can't be stored: after a crash a restart may wait for the lock to expire", zap.Error(err))
	}
}
