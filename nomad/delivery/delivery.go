// Package delivery streams the agent into tasks by alloc exec, for Nomad's clients that can't fetch
// it from this server (docs/decisions/0042).
package delivery

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/rockpool/rockpool/agent/embedded"
	"github.com/rockpool/rockpool/nomad/connection"
	"github.com/rockpool/rockpool/runtime/turns"
)

// AtOnce bounds the deliveries: each is a connection to Nomad, which carries some 3 MB.
const AtOnce = 4

// stalled is how long nothing may move in a delivery: an alloc exec in the instant of a container's start
// may hang.
const stalled = 5 * time.Second

// piece is how many bytes move together.
const piece = 64 << 10

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
	return &Delivery{nomad: nomad, slots: make(turns.Slots, AtOnce), read: sync.OnceValues(func() (program, error) {
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
// agent that is there already was brought by an earlier try. It reads all in any case: Nomad's
// answer is lost where the connection breaks.
const receive = `if [ -x "$1" ]; then
	cat >/dev/null
	echo ` + arrived + `
	exit
fi
umask 022
trap 'rm -f "$2"' EXIT
mkdir -p "$4" && cat >"$2" && chmod 755 "$2" || {
	cat >/dev/null
	exit 81
}
sum=$("$2" digest)
[ $? -ne 126 ] || exit 82
[ "$sum" = "$3" ] || exit 83
mv "$2" "$1" || exit 81
echo ` + arrived + `
`

// arrived is what receive says at last. Nomad says that an exec ended with 0 also where it never ran, and can lose
// what one said.
const arrived = "arrived"

// To brings the agent to a path in a task, at a node if that is known. It waits for its turn, and fails where
// nothing moves for 5 s. It returns a [Refusal] where another try can't help. Two at once for the same
// task don't disturb each other.
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
	stall := time.AfterFunc(stalled, func() { _ = conn.Close() })
	defer stall.Stop()
	// The command may end before it has read all. Its end says why.
	var writeErr error
	for part := range slices.Chunk(agent.binary, piece) {
		if _, writeErr = conn.Write(part); writeErr != nil {
			break
		}
		stall.Reset(stalled)
	}
	if writeErr == nil {
		writeErr = conn.CloseWrite()
	}
	said, err := io.ReadAll(io.LimitReader(conn, 1<<10))
	var ended *connection.ExitError
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case strings.TrimSpace(string(said)) == arrived:
		return nil
	case !errors.As(err, &ended):
		return errors.Join(err, writeErr, fmt.Errorf("it said %q", said))
	}
	switch ended.Code {
	case 0: // it didn't run, or what it said was lost on Nomad's way: the next try finds out
		return errors.New("the delivery ended well, as Nomad says, but it said nothing itself")
	case noExecute:
		if ended.Stderr != "" && !strings.Contains(strings.ToLower(ended.Stderr), "permission denied") {
			return &Refusal{fmt.Sprintf("the agent can't be executed in its task: %s", ended.Stderr)}
		}
		return &Refusal{fmt.Sprintf("nothing can be executed at %s in its task, where the agent must be: what is mounted there is noexec", dir)}
	case noPlace:
		return fmt.Errorf("the agent can't be written to %s: %s", dir, ended.Stderr)
	case cutShort:
		return errors.New("the agent didn't arrive whole")
	default:
		return ended
	}
}
