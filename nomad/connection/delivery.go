package connection

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
	"github.com/rockpool/rockpool/runtime/fairqueue"
)

// DeliveriesAtOnce bounds concurrent deliveries: each is a connection to Nomad that carries about 3 MB.
const DeliveriesAtOnce = 4

// stalled bounds the time without progress: an alloc exec while a container starts may hang.
const stalled = 5 * time.Second

const piece = 64 << 10

// A Delivery streams the agent of one architecture into tasks by alloc exec, for Nomad clients that
// can't fetch it from this server (docs/decisions/0042). A task never runs an incomplete or different
// program as the agent. Its methods are safe for concurrent use.
type Delivery struct {
	nomad *Client
	read  func() (program, error) // reads the agent when it is first called
	slots fairqueue.Slots
}

type program struct {
	binary []byte
	sum    string
}

// NewDelivery returns a delivery for an architecture, named as in GOARCH. It reads the agent later.
func NewDelivery(nomad *Client, arch string) *Delivery {
	return &Delivery{nomad: nomad, slots: make(fairqueue.Slots, DeliveriesAtOnce), read: sync.OnceValues(func() (program, error) {
		binary, err := embedded.Binary(arch)
		sum := sha256.Sum256(binary)
		return program{binary, hex.EncodeToString(sum[:])}, err
	})}
}

// A RefusalError says why a task can never get the agent. Retrying doesn't help.
type RefusalError struct{ why string }

func (r *RefusalError) Error() string { return r.why }

// Exit codes of the shell script receive.
const (
	unwritable = 81 // the agent can't be written
	noExecute  = 82 // the agent can't be executed where it was written
	cutShort   = 83 // the received bytes aren't the agent
)

// receive writes its standard input to a temporary file, $2, and renames that to $1 if it is the
// agent with the checksum $3. The agent itself computes its checksum, because an image may have no
// program for that. An existing agent was delivered by an earlier try. The script always reads all
// of its input: Nomad loses its answer if the connection breaks.
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

// arrived is the last output of receive. Nomad also reports exit code 0 for a command that never
// ran, and can lose the output of one.
const arrived = "arrived"

// To delivers the agent to a path in a task, at a node if that is known. It waits for its turn, and
// fails after 5 s without progress. It returns a [RefusalError] if retrying can't help. Concurrent calls
// for the same task don't disturb each other.
func (d *Delivery) To(ctx context.Context, node, allocation, task, path string) error {
	return d.slots.Do(ctx, func() error { return d.to(ctx, node, allocation, task, path) })
}

// to delivers the agent. The caller has a slot.
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
	// A Read of an Exec has no deadline. Only Close ends it.
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	stall := time.AfterFunc(stalled, func() { _ = conn.Close() })
	defer stall.Stop()
	// The command may end before it has read everything. Its exit code says why.
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
	ended, exited := errors.AsType[*ExitError](err)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case strings.TrimSpace(string(said)) == arrived:
		return nil
	case !exited:
		return errors.Join(err, writeErr, fmt.Errorf("the command printed %q", said))
	}
	switch ended.Code {
	case 0: // it never ran, or Nomad lost its output: the next try finds out
		return errors.New("the delivery succeeded according to Nomad, but the command printed nothing")
	case noExecute:
		if ended.Stderr != "" && !strings.Contains(strings.ToLower(ended.Stderr), "permission denied") {
			return &RefusalError{fmt.Sprintf("the agent can't be executed in its task: %s", ended.Stderr)}
		}
		return &RefusalError{fmt.Sprintf("nothing can be executed at %s in its task, where the agent must be: what is mounted there is noexec", dir)}
	case unwritable:
		return fmt.Errorf("the agent can't be written to %s: %s", dir, ended.Stderr)
	case cutShort:
		return errors.New("the agent arrived incomplete or changed")
	default:
		return ended
	}
}
