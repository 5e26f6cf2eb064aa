// Package daemon is rockpool-sandbox while it listens: it makes and removes
// sandboxes for a server that has no privileges.
//
// Who asks is known by the kernel, not by what is said: the socket belongs to one
// user, whose every connection is checked once more. A request is one packet, so
// none is ever half there, with the socket of the sandbox's agent as its one
// descriptor. What it may say is checked by package helper. Each is served by a
// rockpool-sandbox of its own, in a mount namespace of its own (package launch),
// which is told where it works by this one, not by the request.
//
// Sandboxes hang on neither the server nor the helper. What they have of the
// helper is on disk, and the next one goes on with it.
package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/sandbox/roots"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/local/uids"
)

// A Config says where a helper listens, for whom, and where it works.
type Config struct {
	Socket string `json:"socket"` // its path; "": descriptor 3, which systemd made
	UID    int    `json:"uid"`    // of the server
	Dir    string `json:"dir"`    // root's alone; Agent and Program are there
	Images string `json:"images"` // where the server unpacks images
	Parent string `json:"parent"` // the group that sandboxes' groups are in
	// What sandboxes may have of the network; nil: none has any.
	Network *network.Offer `json:"network,omitempty"`
	// Programs that can be asked for by name, to make sandboxes.
	Runtimes oci.Runtimes `json:"runtimes,omitempty"`
	DiskRead int64        `json:"diskRead,omitempty"` // see helper.Config
	Worker   string       `json:"worker"`             // a program that everybody can execute, and that works as image.Work when helper.WorkerArgument is its argument
}

const runDir = "/run/rockpool"

// Files in Config.Dir, which are there before a daemon is.
const (
	Program = "rockpool-sandbox"
	Agent   = "agent"
)

// A daemon is a helper that listens.
type daemon struct {
	config Config
	log    *log.Logger
	trees  cgroup.Hierarchies
	lock   *os.File
	root   string // the name of the directory that sandboxes are made around
	launch launch.Direct
	holds  holds
	turns  turns
	works  chan struct{} // a token for each worker
}

// Listen reads a Config and serves until ctx ends. Sandboxes stay.
func Listen(ctx context.Context, config string, log *log.Logger) error {
	d := &daemon{log: log, turns: turns{busy: map[string]chan struct{}{}}, works: make(chan struct{}, worksAtOnce)}
	if err := json.Unmarshal([]byte(config), &d.config); err != nil {
		return fmt.Errorf("read configuration: %w", err)
	}
	if err := d.open(); err != nil {
		return err
	}
	defer d.lock.Close()
	listener, err := d.listen()
	if err != nil {
		return err
	}
	log.Printf("listening for user %d; sandboxes are below %s", d.config.UID, d.config.Parent)
	d.serve(ctx, listener)
	d.launch.Maker.Close()
	for group := d.config.Parent; group != "/"; group = filepath.Dir(group) {
		d.trees.Prune(group)
	}
	return nil
}

// open takes the directory, with what the last helper left there.
func (d *daemon) open() (err error) {
	c := d.config
	if !helper.ValidParent(c.Parent) {
		return fmt.Errorf("the cgroup parent %q isn't rockpool or below it", c.Parent)
	}
	if c.Network != nil {
		if err := c.Network.Check(); err != nil {
			return fmt.Errorf("the network: %w", err)
		}
	}
	if err := roots.Alone(c.Dir); err != nil {
		return err
	}
	// Where each request has its mounts, in a namespace of its own.
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return err
	}
	if err := roots.Alone(runDir); err != nil {
		return err
	}
	for _, sub := range []string{"state", "roots", "held"} {
		if err := os.MkdirAll(filepath.Join(c.Dir, sub), 0o700); err != nil {
			return err
		}
	}
	if d.lock, err = os.OpenFile(filepath.Join(c.Dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return err
	}
	if err := launch.TakeLock(d.lock); err != nil {
		return fmt.Errorf("another helper, or what one left at work, is using %s: %w", c.Dir, err)
	}
	if d.trees, err = cgroup.Mounted(); err != nil {
		return err
	}
	if err := d.trees.Prepare(c.Parent); err != nil {
		return err
	}
	d.holds = holds{filepath.Join(c.Dir, "held"), &uids.Ranges{Dir: uids.Default, Count: spec.MaxSlots}}
	gone, err := d.sweep()
	if err != nil {
		return fmt.Errorf("clean up after the last helper: %w", err)
	}
	agent, err := os.ReadFile(filepath.Join(c.Dir, Agent))
	if err != nil {
		return err
	}
	machine := spec.Inspect(d.trees)
	d.root = fmt.Sprintf("%x", time.Now().UnixNano())
	root := filepath.Join(c.Dir, "roots", d.root)
	if err := spec.BuildRoot(root, machine, agent); err != nil {
		return fmt.Errorf("the sandboxes' root directory: %w", err)
	}
	if c.Network != nil {
		if err := spec.WriteResolver(root, c.Network.Pool.Gateway()); err != nil {
			return fmt.Errorf("the sandboxes' root directory: %w", err)
		}
	}
	d.launch = launch.Direct{
		Path:   filepath.Join(c.Dir, Program),
		Config: helper.Config{State: filepath.Join(c.Dir, "state"), Root: root, Images: c.Images, Owners: spec.ImageOwners, Machine: machine, Network: c.Network, Runtimes: whole(c.Runtimes), DiskRead: c.DiskRead},
		Lock:   d.lock,
		Maker:  new(launch.Maker),
	}
	for _, id := range gone {
		ctx, stop := context.WithTimeout(context.Background(), doneWithin)
		err := d.remove(ctx, id)
		stop()
		if err != nil {
			return fmt.Errorf("clean up after the last helper: %w", err)
		}
	}
	return nil
}

// whole looks which of the runtimes know no time namespaces. One that can't be had
// now is looked at no more: it is refused, or used as if it knew them.
func whole(all oci.Runtimes) oci.Runtimes {
	var mu sync.Mutex // guards known
	known := oci.Runtimes{}
	var probing sync.WaitGroup
	for name, r := range all {
		probing.Go(func() {
			_, noTime, err := all.Probe(context.Background(), name)
			r.NoTime = err == nil && noTime
			mu.Lock()
			defer mu.Unlock()
			known[name] = r
		})
	}
	probing.Wait()
	return known
}

// sweep returns the sandboxes that aren't there any more and still have something,
// and deletes the root directories that no other was made around.
func (d *daemon) sweep() (gone []string, err error) {
	held, err := d.holds.all()
	if err != nil {
		return nil, err
	}
	var used []string
	for id, root := range held {
		alive, err := d.trees.Exists(d.group(id))
		if err != nil {
			return nil, err
		}
		if alive {
			used = append(used, root)
		} else {
			gone = append(gone, id)
		}
	}
	return gone, spec.SweepRoots(filepath.Join(d.config.Dir, "roots"), used)
}

// listen opens the socket, which only the server's user can open.
func (d *daemon) listen() (*net.UnixListener, error) {
	if d.config.Socket == "" {
		file := os.NewFile(3, "socket")
		defer file.Close()
		l, err := net.FileListener(file)
		if err != nil {
			return nil, fmt.Errorf("the socket that was handed over: %w", err)
		}
		unixListener, ok := l.(*net.UnixListener)
		if !ok || l.Addr().Network() != "unixpacket" {
			return nil, errors.Join(errors.New("the socket that was handed over isn't one of ListenSequentialPacket="), l.Close())
		}
		return unixListener, nil
	}
	dir := filepath.Dir(d.config.Socket)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := roots.Alone(dir); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(d.config.Socket); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("%s is there, and isn't a socket", d.config.Socket)
		}
		if err := os.Remove(d.config.Socket); err != nil { // the last helper's; this one has the lock
			return nil, err
		}
	}
	before := unix.Umask(0o177)
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: d.config.Socket, Net: "unixpacket"})
	unix.Umask(before)
	if err != nil {
		return nil, err
	}
	if err := os.Chown(d.config.Socket, d.config.UID, -1); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}
