// Package lock ensures that at most one server at a time owns a prefix in Nomad. It uses a lock in
// a Nomad variable.
package lock

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

	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/backoff"
	"github.com/rockpool/rockpool/runtime/health"
)

// standbyPause is the interval in which a standby tries to acquire the lock.
const standbyPause = time.Second

// releaseWithin bounds the calls for the lock while the server shuts down.
const releaseWithin = 2 * time.Second

// ErrLost says that another server may own the prefix now. This server must stop using it
// immediately.
var ErrLost = errors.New("another server may have taken over: this one couldn't renew its lock in Nomad in time")

// A Lock is the lock of a prefix.
type Lock struct {
	Nomad  *connection.Client
	Prefix string
	Path   string        // path of the variable
	TTL    time.Duration // time after which a standby takes over from a dead server
	// Dir keeps the lock's id, so that a killed server continues immediately after a restart; "":
	// it isn't kept.
	Dir      string
	Logger   *zap.Logger
	Problems *health.Problems // reports why the lock isn't held
	// Peer is what other servers read about the owner while this server holds the lock. Seen is
	// called with the Peer of another owner, and with the zero Peer when this server has acquired
	// the lock.
	Peer Peer
	Seen func(Peer)
	// Vigil waits until an owner's process has ended, and returns the id of its lock, or ctx's
	// cause. If it is nil, a dead owner's lock is free only after its TTL.
	Vigil func(ctx context.Context, of Peer) (id string, err error)
	// Counts, which several Locks may share, counts acquisitions and losses; nil: no counting.
	Counts *Counts
}

// A Peer is the address where a server accepts connections of other servers, and the secret that
// they must present.
type Peer struct{ Address, Secret string }

// subject is the subject of the lock's problems.
const subject = "lock"

// A Held is an acquired lock.
type Held struct {
	lock     Lock
	variable *api.Variable // with the lock's id
	since    time.Time     // before the lock's TTL began
}

// Acquire waits until no other server has the lock, and acquires it. The caller must call Renew
// immediately and Release at the end.
func (l Lock) Acquire(ctx context.Context) (*Held, error) {
	wanted := &api.Variable{
		Path:  l.Path,
		Items: api.VariableItems{"owner": hostname(), "peer": l.Peer.Address, "secret": l.Peer.Secret},
		Lock:  &api.VariableLock{ID: l.lastID(), TTL: l.TTL.String(), LockDelay: "1s"},
	}
	ended := vigil{lock: l}
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
			l.Seen(Peer{})
			l.Problems.Resolve(subject)
			l.Counts.renewed(since)
			l.keepID(variable.Lock.ID)
			return held, nil
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case code == http.StatusConflict:
			wanted.Lock.ID = "" // the kept lock has expired
			if owner, err := l.owner(ctx); err == nil {
				l.Seen(owner)
				ended.watch(ctx, owner)
			}
			l.Problems.Report(subject, fmt.Sprintf("another server owns %q in Nomad: this one waits to take over", l.Prefix))
		default:
			l.Problems.Report(subject, l.Nomad.Explain("own "+l.Prefix, err).Error())
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

// A vigil waits for the end of the owner's process, while its lock is being tried periodically.
type vigil struct {
	lock  Lock
	of    Peer
	ended chan string // receives the id of the owner's lock; a new one for each owner
	end   context.CancelFunc
	id    string // the lock of an owner that has ended; "": it hasn't
}

// watch makes the vigil wait for the end of an owner, if it doesn't already.
func (v *vigil) watch(ctx context.Context, owner Peer) {
	if v.lock.Vigil == nil || owner == v.of {
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
		if id, err := v.lock.Vigil(ctx, owner); err == nil {
			ended <- id
		}
	}()
}

// release releases the lock of an owner that has ended. The owner's next process may hold the lock
// under the same id, but has another secret.
func (v *vigil) release(ctx context.Context) {
	now, err := v.lock.owner(ctx)
	if err != nil || now != v.of {
		return
	}
	v.lock.Logger.Warn("the server that led has ended without releasing its lock: releasing it, so that another server can lead")
	(&Held{lock: v.lock, variable: &api.Variable{Path: v.lock.Path, Lock: &api.VariableLock{ID: v.id}}}).release()
}

// stop ends the wait for the present owner. It doesn't wait for the goroutine.
func (v *vigil) stop() {
	if v.end != nil {
		v.end()
	}
}

// owner returns the lock's owner. It is the zero Peer if there is none, or if it accepts no
// connections of other servers.
func (l Lock) owner(ctx context.Context) (peer Peer, err error) {
	err = l.Nomad.Attempt(ctx, func(ctx context.Context) error {
		v, _, err := l.Nomad.API().Variables().Peek(l.Path, connection.Query(ctx))
		if err == nil && v != nil && v.Lock != nil {
			peer = Peer{v.Items["peer"], v.Items["secret"]}
		}
		return err
	})
	return peer, err
}

// acquireOnce tries to acquire the lock. It waits for the answer slightly longer than ctx. If the
// answer isn't read, the lock's id is unknown, and the lock would block every server until its TTL.
func (l Lock) acquireOnce(ctx context.Context, wanted *api.Variable) (*api.Variable, error) {
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
		err := h.renewOnce(ctx, end)
		code, _ := connection.Status(err)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			end = began.Add(ttl)
			h.lock.Counts.renewed(began)
		case code == http.StatusConflict, !time.Now().Before(end):
			h.lock.Counts.lose()
			return runtime.Wrap(runtime.CodeClusterUnavailable, ErrLost, "this server no longer owns %q in Nomad", h.lock.Prefix)
		default:
			h.lock.Logger.Warn("the lock in Nomad couldn't be renewed; retrying", zap.Error(h.lock.Nomad.Redact(err)))
		}
	}
}

// renewOnce renews the lock, or fails at end, when the lock may have expired.
func (h *Held) renewOnce(ctx context.Context, end time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	_, _, err := h.lock.Nomad.API().Variables().RenewLock(h.variable, connection.Writing(ctx))
	return err
}

// Release releases the lock, so that a standby can take over immediately. Call it once, after Renew
// has returned.
func (h *Held) Release() {
	h.release()
	h.lock.keepID("")
}

// release releases the lock in Nomad. It has a deadline of its own, since the server may be ending.
func (h *Held) release() {
	h.lock.Counts.release()
	ctx, cancel := context.WithTimeout(context.Background(), releaseWithin)
	defer cancel()
	if _, _, err := h.lock.Nomad.API().Variables().ReleaseLock(h.variable, connection.Writing(ctx)); err != nil {
		h.lock.Logger.Info("the lock in Nomad couldn't be released; it expires after its TTL", zap.Error(h.lock.Nomad.Redact(err)))
	}
}

// ID returns the lock's id. A server that knows it can release the lock.
func (h *Held) ID() string { return h.variable.Lock.ID }

// file returns the path at which the lock's id is kept.
func (l Lock) file() string { return filepath.Join(l.Dir, "nomad-lock") }

// lastID returns the id of the lock that the last server with this directory held; "" if it is
// unknown.
func (l Lock) lastID() string {
	if l.Dir == "" {
		return ""
	}
	text, _ := os.ReadFile(l.file())
	return strings.TrimSpace(string(text))
}

// keepID stores the id of the held lock for the next server with this directory; "" for none. A
// failure is only logged.
func (l Lock) keepID(id string) {
	if l.Dir == "" {
		return
	}
	if err := os.WriteFile(l.file(), []byte(id+"\n"), 0o600); err != nil {
		l.Logger.Warn("the lock's id can't be stored: after a crash a restart may wait for the lock to expire", zap.Error(err))
	}
}

// hostname returns the machine's name, which the lock shows to people as its owner.
func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}
