// Package lock has one server at a time own what is under one prefix in Nomad, by a lock in
// one of Nomad's variables.
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
	"github.com/rockpool/rockpool/runtime/problems"
)

// standbyPause is how often a standby tries whether the owner is gone.
const standbyPause = time.Second

// releaseWithin bounds what is done for the lock once the server is to end.
const releaseWithin = 2 * time.Second

// ErrLost says that another server may own the prefix by now.
var ErrLost = errors.New("another server may have taken over: this one could not renew its lock in Nomad in time")

// A Lock is the one of a prefix.
type Lock struct {
	Nomad  *connection.Client
	Prefix string
	Path   string        // of the variable
	TTL    time.Duration // after which a standby takes over from a server that is dead
	// Dir keeps the lock's id, so that a server that was killed goes on at once when it is
	// started again; "": it is kept nowhere.
	Dir      string
	Logger   *zap.Logger
	Problems *problems.List // says why the lock isn't held yet
	// Peer is what others read of the owner of the lock. Seen gets what this server read of another owner, and the
	// zero Peer once it has the lock itself.
	Peer Peer
	Seen func(Peer)
	// Vigil waits until the process of an owner has ended, and returns the id of its lock, or ctx's cause; nil: nobody
	// finds out, and a lock is free once it ends by itself.
	Vigil func(ctx context.Context, of Peer) (id string, err error)
	// Counts, which several Locks may share, count what becomes of it; nil: nobody does.
	Counts *Counts
}

// A Peer is where a server takes what others pass on to it, and what it wants to be shown.
type Peer struct{ Address, Secret string }

// subject is what a problem of the lock is about.
const subject = "lock"

// A Held is a lock that was acquired.
type Held struct {
	lock     Lock
	variable *api.Variable
	since    time.Time // it can't have begun before
}

// Acquire waits until no other server has the lock, and takes it. Renew it from then on.
func (l Lock) Acquire(ctx context.Context) (*Held, error) {
	wanted := &api.Variable{
		Path:  l.Path,
		Items: api.VariableItems{"owner": hostname(), "peer": l.Peer.Address, "secret": l.Peer.Secret},
		Lock:  &api.VariableLock{ID: l.lastID(), TTL: l.TTL.String(), LockDelay: "1s"},
	}
	ended := vigil{lock: l}
	defer ended.stop()
	for {
		since := time.Now()
		variable, err := l.acquireOnce(ctx, wanted)
		held := &Held{l, variable, since}
		switch code, _ := connection.Status(err); {
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
			wanted.Lock.ID = "" // it was lost meanwhile
			if owner, err := l.owner(ctx); err == nil {
				l.Seen(owner)
				ended.watch(ctx, owner)
			}
			l.Problems.Report(subject, fmt.Sprintf("another server owns %q in Nomad: this one waits to take over", l.Prefix))
		default:
			l.Problems.Report(subject, l.Nomad.Explain("own "+l.Prefix, err).Error())
		}
		if ended.id != "" {
			ended.release(ctx) // again, where Nomad didn't take it
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

// A vigil waits for the end of the owner's process, beside the tries to get its lock.
type vigil struct {
	lock  Lock
	of    Peer
	ended chan string // gets the lock's id; of this owner alone
	end   context.CancelFunc
	id    string // of the lock of an owner that has ended; "": it hasn't
}

// watch has the vigil wait for the end of an owner, if it doesn't already.
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
	go func() { // ends with ctx
		if id, err := v.lock.Vigil(ctx, owner); err == nil {
			ended <- id
		}
	}()
}

// release releases the lock of an owner that has ended. Its own next process may have the lock by the same id: that
// one has another secret.
func (v *vigil) release(ctx context.Context) {
	now, err := v.lock.owner(ctx)
	if err != nil || now != v.of {
		return
	}
	v.lock.Logger.Warn("the server that led has ended without giving its lock back: it is released, so that another one can lead")
	(&Held{lock: v.lock, variable: &api.Variable{Path: v.lock.Path, Lock: &api.VariableLock{ID: v.id}}}).release()
}

func (v *vigil) stop() {
	if v.end != nil {
		v.end()
	}
}

// owner returns who has the lock; the zero Peer: nobody, or who takes no connections of others.
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

// acquireOnce tries to get the lock, for a moment longer than ctx: a lock whose answer
// isn't read has no known id, and would be in every server's way until its TTL.
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
		err = errors.New("no lock came with Nomad's answer: is it 1.7 or newer?")
	}
	return &api.Variable{Path: wanted.Path, Lock: lock}, err
}

// Renew renews the lock until ctx ends, or until it isn't certain any more that it is held,
// and returns ErrLost no later than that.
func (h *Held) Renew(ctx context.Context) error {
	ttl := h.lock.TTL
	end := h.since.Add(ttl)
	for {
		if err := backoff.Sleep(ctx, min(ttl/5, time.Until(end))); err != nil {
			return err
		}
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
			return runtime.Wrap(runtime.CodeClusterUnavailable, ErrLost, "this server doesn't own %q in Nomad any more", h.lock.Prefix)
		default:
			h.lock.Logger.Warn("the lock in Nomad could not be renewed yet", zap.Error(h.lock.Nomad.Redact(err)))
		}
	}
}

func (h *Held) renewOnce(ctx context.Context, end time.Time) error {
	ctx, cancel := context.WithDeadline(ctx, end)
	defer cancel()
	_, _, err := h.lock.Nomad.API().Variables().RenewLock(h.variable, connection.Writing(ctx))
	return err
}

// Release lets a standby take over at once. Call it once, after Renew has returned.
func (h *Held) Release() {
	h.release()
	h.lock.keepID("")
}

func (h *Held) release() {
	h.lock.Counts.release()
	ctx, cancel := context.WithTimeout(context.Background(), releaseWithin)
	defer cancel()
	if _, _, err := h.lock.Nomad.API().Variables().ReleaseLock(h.variable, connection.Writing(ctx)); err != nil {
		h.lock.Logger.Info("the lock in Nomad wasn't released; it ends by itself", zap.Error(h.lock.Nomad.Redact(err)))
	}
}

// ID returns the lock's id. A server that knows it can release the lock.
func (h *Held) ID() string { return h.variable.Lock.ID }

func (l Lock) file() string { return filepath.Join(l.Dir, "nomad-lock") }

// lastID returns the lock that the last server with this directory held.
func (l Lock) lastID() string {
	if l.Dir == "" {
		return ""
	}
	text, _ := os.ReadFile(l.file())
	return strings.TrimSpace(string(text))
}

func (l Lock) keepID(id string) {
	if l.Dir == "" {
		return
	}
	if err := os.WriteFile(l.file(), []byte(id+"\n"), 0o600); err != nil {
		l.Logger.Warn("the lock's id can't be kept: a restart may wait for the lock to end", zap.Error(err))
	}
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "unknown"
	}
	return name
}
