// Package delivery streams the agent into tasks by alloc exec, for Nomad's clients that can't fetch
// it from this server (docs/decisions/0042).
package delivery

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/agent/embedded"
	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/runtime/turns"
)

// atOnce bounds the deliveries: each is a connection to Nomad, which carries some 3 MB.
const atOnce = 4

// A Delivery brings the agent of one architecture into tasks. Its methods may be called at once.
type Delivery struct {
	nomad *connection.Client
	read  func() (program, error)
	slots turns.Slots
}

// A program is the agent, with its SHA-256 in hex.
type program struct {
	binary []byte
	sum    string
}

// New returns a delivery of the agent for an architecture, as GOARCH names it. The first delivery
// reads it.
func New(nomad *connection.Client, arch string) *Delivery {
	return &Delivery{nomad: nomad, slots: make(turns.Slots, atOnce), read: sync.OnceValues(func() (program, error) {
		binary, err := embedded.Binary(arch)
		sum := sha256.Sum256(binary)
		return program{binary, hex.EncodeToString(sum[:])}, err
	})}
}

// A Refusal says why a task can never get the agent.
type Refusal struct{ why string }

// Error implements error.
func (r *Refusal) Error() string { return r.why }

// Exit codes of receive.
const (
	noPlace   = 81 // it can't be written
	noExecute = 82 // it can't be executed where it was written
	cutShort  = 83 // other bytes have arrived
)

// receive writes its standard input to a path, $1, by the name $2 until it is known to be the agent with
// the checksum $3. The agent itself tells its checksum: an image may have no program for it. An
// agent that is there already was brought by an earlier try.
const receive = `[ -x "$1" ] && exit 0
umask 022
mkdir -p "$4" || exit 81
cat >"$2" || exit 81
chmod 755 "$2" || exit 81
sum=$("$2" digest)
code=$?
if [ "$code" -eq 126 ]; then
	rm -f "$2"
	exit 82
fi
if [ "$sum" != "$3" ]; then
	rm -f "$2"
	exit 83
fi
mv "$2" "$1" || exit 81`

// To brings the agent to a path in a task, at a node if that is known. It returns a [Refusal] where
// another try can't help. Two at once for the same task don't disturb each other.
func (d *Delivery) To(ctx context.Context, node, allocation, task, path string) error {
	return d.slots.Do(ctx, func() error { return d.to(ctx, node, allocation, task, path) })
}

func (d *Delivery) to(ctx context.Context, node, allocation, task, path string) error {
	agent, err := d.read()
	if err != nil {
		return err
	}
	dir, unique := path[:strings.LastIndexByte(path, '/')], path+"."+uuid.NewString()
	conn, err := d.nomad.Exec(ctx, node, allocation, task, []string{"/bin/sh", "-c", receive, "sh", path, unique, agent.sum, dir})
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	// The command may end before it has read all. Its end says why.
	_, writeErr := io.Copy(conn, bytes.NewReader(agent.binary))
	if writeErr == nil {
		writeErr = conn.CloseWrite()
	}
	_, err = io.Copy(io.Discard, conn)
	var ended *connection.ExitError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case !errors.As(err, &ended):
		return errors.Join(err, writeErr)
	}
	switch ended.Code {
	case 0:
		return nil
	case noExecute:
		return &Refusal{fmt.Sprintf("nothing can be executed at %s in its task, where the agent must be: what is mounted there is noexec", dir)}
	case noPlace:
		return fmt.Errorf("the agent can't be written to %s: %s", dir, ended.Stderr)
	case cutShort:
		return errors.New("the agent didn't arrive whole")
	default:
		return ended
	}
}
