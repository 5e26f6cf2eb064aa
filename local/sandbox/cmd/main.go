// Command rockpool-sandbox makes and removes sandboxes with libcontainer. It
// is the one part of Rockpool that needs cgo and privileges. The server starts
// it once per sandbox, in a mount namespace of its own and with nothing in its
// environment; what the two say to each other is in package helper.
//
// A sandbox outlives the helper and the server: it has no parent-death signal
// and no pipe to either.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // its C constructor sets the namespaces up
	"golang.org/x/sys/unix"

	_ "github.com/opencontainers/cgroups/devices" // without it devices can't be limited

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/oci"
)

// removeWithin is how long the processes of a sandbox may take to die.
const removeWithin = 5 * time.Second

func main() {
	// libcontainer starts this binary again, inside the sandbox, as "init".
	if len(os.Args) == 2 && os.Args[1] == "init" {
		runtime.LockOSThread()
		libcontainer.Init()
	}
	if len(os.Args) == 2 && os.Args[1] == holdCommand {
		hold()
	}
	if len(os.Args) > 2 && os.Args[1] == oci.JoinCommand {
		fmt.Fprintln(os.Stderr, oci.Join(os.Args[2:]))
		os.Exit(1)
	}
	answer, err := run()
	if err != nil {
		var final finalError
		answer = helper.Answer{Error: err.Error(), Final: errors.As(err, &final)}
	}
	if json.NewEncoder(os.Stdout).Encode(answer) != nil || err != nil {
		os.Exit(1)
	}
}

func run() (helper.Answer, error) {
	// Descriptors of whoever started the server must not reach the sandbox; 3
	// is the socket. They are marked, not closed: some are the Go runtime's.
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return helper.Answer{}, fmt.Errorf("close_range: %w", err)
	}
	unix.Umask(0o022) // whatever the server's: what is made here is for the sandbox
	if len(os.Args) < 2 || len(os.Args) > 3 {
		return helper.Answer{}, errors.New("usage: rockpool-sandbox create|remove [RUNTIMES], with a request on stdin (the server runs it; see package helper)")
	}
	q, err := helper.Read(os.Stdin)
	if err != nil {
		return helper.Answer{}, err
	}
	trees, err := cgroup.Mounted()
	if err != nil {
		return helper.Answer{}, err
	}
	var runtimes oci.Runtimes
	if len(os.Args) == 3 {
		if err := json.Unmarshal([]byte(os.Args[2]), &runtimes); err != nil {
			return helper.Answer{}, fmt.Errorf("read the runtimes: %w", err)
		}
	}
	switch os.Args[1] {
	case helper.Create:
		answer, err := create(q, trees, runtimes)
		if err != nil {
			return helper.Answer{}, errors.Join(err, remove(q, trees))
		}
		return answer, nil
	case helper.Remove:
		return helper.Answer{}, remove(q, trees)
	default:
		return helper.Answer{}, fmt.Errorf("unknown command %q", os.Args[1])
	}
}

// remove needs no state of libcontainer's, since a create that was killed may
// have left none: everything that a sandbox is hangs on its groups and its
// state directory. Its mounts go with its mount namespace.
func remove(q *helper.Request, trees cgroup.Hierarchies) error {
	ctx, cancel := context.WithTimeout(context.Background(), removeWithin)
	defer cancel()
	if err := trees.Remove(ctx, q.Cgroup); err != nil {
		return err
	}
	return os.RemoveAll(filepath.Join(q.StateDir, q.ID))
}
