// Command rockpool-sandbox makes and removes sandboxes with libcontainer. It is the only part of
// Rockpool that needs cgo and privileges. It is started once per sandbox, in its own mount
// namespace and with an empty environment, as
//
//	rockpool-sandbox once CONFIG
//
// with a request on its stdin (see package helper). Or it listens, for a server without privileges,
// and starts itself once per request (package daemon):
//
//	rockpool-sandbox listen CONFIG
//
// Most sandboxes are made without a process of their own each (package maker), by one that is
// started as
//
//	rockpool-sandbox maker CONFIG
//
// A sandbox outlives the helper and the server: it has no parent-death signal, and no pipe to
// either.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	_ "github.com/opencontainers/runc/libcontainer/nsenter" // its C constructor sets the namespaces up
	"golang.org/x/sys/unix"

	_ "github.com/opencontainers/cgroups/devices" // without it devices can't be limited

	"github.com/rockpool/rockpool/local/network/firewall"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/daemon"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/oci"
)

// removeWithin bounds how long the processes of a sandbox may take to end.
const removeWithin = 5 * time.Second

func main() {
	// libcontainer starts this binary again, inside the sandbox, as "init".
	if len(os.Args) == 2 && os.Args[1] == "init" {
		runtime.LockOSThread()
		libcontainer.Init()
	}
	if len(os.Args) > 2 && os.Args[1] == oci.JoinCommand {
		fmt.Fprintln(os.Stderr, oci.Join(os.Args[2:]))
		os.Exit(1)
	}
	if len(os.Args) == 3 && os.Args[1] == helper.Wait {
		awaitUsers(os.Args[2])
	}
	if len(os.Args) == 3 && os.Args[1] == helper.Listen {
		os.Exit(listen(os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == helper.Maker {
		if err := serveMaker(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "rockpool-sandbox:", err)
			os.Exit(1)
		}
		return
	}
	answer, err := run()
	if err != nil {
		answer = failed(err)
	}
	if json.NewEncoder(os.Stdout).Encode(answer) != nil || err != nil {
		os.Exit(1)
	}
}

// listen serves until SIGTERM, SIGINT, or SIGHUP unless nohup(1) made this program ignore it. It returns
// the program's exit code.
func listen(config string) int {
	stops := []os.Signal{unix.SIGTERM, unix.SIGINT}
	if !signal.Ignored(unix.SIGHUP) {
		stops = append(stops, unix.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), stops...)
	defer stop()
	log := log.New(os.Stderr, "rockpool-sandbox: ", 0)
	if err := daemon.Listen(ctx, config, log); err != nil {
		log.Print(err)
		return 1
	}
	return 0
}

// prepare makes this process independent of the one that started it.
func prepare() error {
	// Descriptors that the server inherited must not reach the sandbox; 3 is a socket. They are
	// marked close-on-exec, not closed: some belong to the Go runtime.
	if err := unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close_range: %w", err)
	}
	unix.Umask(0o022) // independent of the server's: files made here are for the sandbox
	disinherit()
	return nil
}

// run serves one request from stdin. After a failed create it removes what is left.
func run() (helper.Answer, error) {
	if err := prepare(); err != nil {
		return helper.Answer{}, err
	}
	if len(os.Args) != 3 || os.Args[1] != helper.Once {
		return helper.Answer{}, errors.New("usage: rockpool-sandbox once CONFIG, with a request on stdin (the server runs it; see package helper)")
	}
	config, err := helper.ReadConfig(os.Args[2])
	if err != nil {
		return helper.Answer{}, err
	}
	q, err := helper.Read(os.Stdin)
	if err != nil {
		return helper.Answer{}, err
	}
	trees, err := groupsOf(config)
	if err != nil {
		return helper.Answer{}, err
	}
	switch q.Command {
	case helper.Remove:
		return helper.Answer{}, remove(config, q, trees)
	case helper.Lease, helper.Verify:
		return helper.Answer{}, networkOf(config, q)
	}
	answer, err := create(config, q, trees)
	if err != nil {
		return helper.Answer{}, errors.Join(err, remove(config, q, trees))
	}
	return answer, nil
}

// remove removes a sandbox. It uses no state of libcontainer, because a create that was killed may
// have left none: everything of a sandbox can be found by its cgroups and its state directory. Its
// mounts end with its mount namespace.
func remove(c helper.Config, q *helper.Request, trees cgroup.Hierarchies) error {
	ctx, cancel := context.WithTimeout(context.Background(), removeWithin)
	defer cancel()
	// The processes end first: nothing that they use is removed before.
	if err := trees.Remove(ctx, c.Group(q.ID)); err != nil {
		return err
	}
	state := filepath.Join(c.State, q.ID)
	var err error
	if c.Rootless != nil { // an earlier server may have made it without cgroups
		err = endByState(ctx, state)
	} else {
		err = firewall.Remove(c.Group(q.ID))
	}
	if err == nil {
		err = returnOutside(c, q.ID)
	}
	if err != nil {
		return err
	}
	return os.RemoveAll(state) // last, because returnOutside reads it
}
