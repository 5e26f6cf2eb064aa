// Package daemon is the listening mode of rockpool-sandbox: it makes and removes sandboxes for a
// server without privileges, and guarantees that only this server's user is served.
//
// The kernel identifies the client: the socket belongs to one user, and each connection's
// credentials are checked again. A request is one packet, so it is never incomplete; its only
// descriptor is the socket of the sandbox's agent. Package helper checks its contents. Each request
// is served by a rockpool-sandbox in a mount namespace of its own (package launch), which gets its
// configuration from this process, not from the request.
//
// Sandboxes depend on neither the server nor the helper. Everything that the helper holds for them
// is on disk, and the next helper continues with it.
package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/network"
	"github.com/rockpool/rockpool/local/sandbox/cgroup"
	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/local/sandbox/launch"
	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/local/sandbox/spec"
	"github.com/rockpool/rockpool/local/uids"
)

// A Config is where a helper listens, for which user, and where it works.
type Config struct {
	Socket string `json:"socket"` // path of the socket, "" for descriptor 3, made by systemd
	UID    int    `json:"uid"`    // user id of the server
	Dir    string `json:"dir"`    // writable by root only; contains Agent and Program
	Images string `json:"images"` // directory of the server's unpacked images
	Parent string `json:"parent"` // parent cgroup of the sandboxes
	// Network is what sandboxes may have of the network, nil for nothing.
	Network *network.Offer `json:"network,omitempty"`
	// Runtimes are the OCI runtimes that requests can name.
	Runtimes oci.Runtimes `json:"runtimes,omitempty"`
	DiskRead int64        `json:"diskRead,omitempty"` // see helper.Config
	Worker   string       `json:"worker"`             // a world-executable program that runs image.Work
}

// runDir has a directory for each request's mounts, in a mount namespace of its own.
const runDir = "/run/rockpool"

// Files in Config.Dir that must exist before the daemon starts.
const (
	Program = "rockpool-sandbox"
	Agent   = "agent"
)

type daemon struct {
	config Config
	log    *log.Logger
	trees  cgroup.Hierarchies
	lock   *os.File
	root   string // name of the root directory of this helper's sandboxes
	launch launch.Direct
	holds  holds
	turns  turns
	works  chan struct{} // holds a value for each running worker
}

// Listen parses a Config, and serves until ctx ends. Sandboxes stay. It waits for the requests that
// it is serving, for at most 5 s.
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
	d.trees.Prune(d.config.Parent)
	return nil
}

func (d *daemon) open() (err error) {
	c := d.config
	if !helper.ValidParent(c.Parent) {
		return fmt.Errorf("the cgroup parent %q must be /rockpool or below it", c.Parent)
	}
	if c.Network != nil {
		if err := c.Network.Check(); err != nil {
			return fmt.Errorf("the network settings: %w", err)
		}
	}
	if err := oci.RootOnly(c.Dir); err != nil {
		return err
	}
	// Each request makes its mounts here, in a namespace of its own.
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return err
	}
	if err := oci.RootOnly(runDir); err != nil {
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
		return fmt.Errorf("%s is in use by another helper, or by a process that one left: %w", c.Dir, err)
	}
	if d.trees, err = cgroup.Mounted(); err != nil {
		return err
	}
	if err := d.trees.Prepare(c.Parent); err != nil {
		return err
	}
	d.holds = holds{filepath.Join(c.Dir, "held"), &uids.Ranges{Dir: uids.Default, Count: spec.MaxSlots, First: spec.FirstUID, Size: spec.UIDs}}
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
		return fmt.Errorf("make the root directory of sandboxes: %w", err)
	}
	if c.Network != nil {
		if err := spec.WriteResolver(root, c.Network.Pool.Gateway()); err != nil {
			return fmt.Errorf("make the root directory of sandboxes: %w", err)
		}
	}
	d.launch = launch.Direct{
		Path:   filepath.Join(c.Dir, Program),
		Config: helper.Config{State: filepath.Join(c.Dir, "state"), Root: root, Images: c.Images, Owners: spec.ImageOwners, Machine: machine, Network: c.Network, Runtimes: probeTimes(c.Runtimes), DiskRead: c.DiskRead},
		Lock:   d.lock,
		Maker:  new(launch.Maker),
	}
	// This comes last, because remove uses d.launch.
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

// probeTimes returns the runtimes with NoTime set by a probe. A runtime that is unavailable now
// isn't probed again: it is refused, or used as if it supported time namespaces.
func probeTimes(all oci.Runtimes) oci.Runtimes {
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

// sweep returns the sandboxes that have ended and still hold something, and deletes the root
// directories that no live sandbox uses.
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

// listen opens the socket. Only the server's user, and root, can connect.
func (d *daemon) listen() (*net.UnixListener, error) {
	if d.config.Socket == "" {
		file := os.NewFile(3, "socket")
		defer file.Close()
		l, err := net.FileListener(file)
		if err != nil {
			return nil, fmt.Errorf("the socket from systemd: %w", err)
		}
		unixListener, ok := l.(*net.UnixListener)
		if !ok || l.Addr().Network() != "unixpacket" {
			return nil, errors.Join(errors.New("the socket from systemd must be one of ListenSequentialPacket="), l.Close())
		}
		return unixListener, nil
	}
	dir := filepath.Dir(d.config.Socket)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := oci.RootOnly(dir); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(d.config.Socket); err == nil {
		if info.Mode().Type() != os.ModeSocket {
			return nil, fmt.Errorf("%s exists and isn't a socket: remove it", d.config.Socket)
		}
		if err := os.Remove(d.config.Socket); err != nil { // left by the last helper: this one has the lock
			return nil, err
		}
	}
	// Until Chown, only root can connect.
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

// holds is what the helper holds for sandboxes: a directory for each, which reserves the range of
// user ids and names the root directory that the sandbox uses.
type holds struct {
	dir    string
	ranges *uids.Ranges
}

// Names in a sandbox's directory.
const (
	slotName = "slot"
	rootName = "root"
)

// take reserves a range of user ids for a sandbox that has none.
func (h holds) take(id, root string) (slot int, err error) {
	dir := filepath.Join(h.dir, id)
	if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
		return 0, errors.New("the sandbox exists already: remove it first")
	} else if err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(dir, rootName), []byte(root), 0o600); err != nil {
		return 0, err
	}
	if slot, err = h.ranges.Take(dir); err != nil {
		return 0, fmt.Errorf("no range of user ids is free for it: %w", err)
	}
	return slot, os.WriteFile(filepath.Join(dir, slotName), []byte(strconv.Itoa(slot)), 0o600)
}

// has reports whether something is held for a sandbox, whether the sandbox exists or not.
func (h holds) has(id string) (bool, error) {
	_, err := os.Lstat(filepath.Join(h.dir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (h holds) slot(id string) (int, error) {
	text, err := os.ReadFile(filepath.Join(h.dir, id, slotName))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// release releases what is held for a sandbox that has ended. If the helper was killed before it
// wrote the range's number, the file is missing or empty; then the range is free as soon as its
// holder's directory is gone.
func (h holds) release(id string) error {
	dir := filepath.Join(h.dir, id)
	if text, err := os.ReadFile(filepath.Join(dir, slotName)); err == nil && len(text) > 0 {
		slot, err := strconv.Atoi(string(text))
		if err == nil {
			err = h.ranges.Release(slot, dir)
		}
		if err != nil {
			return fmt.Errorf("release its user ids: %w", err)
		}
	}
	return os.RemoveAll(dir)
}

// all returns the root directory of each sandbox that something is held for.
func (h holds) all() (map[string]string, error) {
	entries, err := os.ReadDir(h.dir)
	if err != nil {
		return nil, err
	}
	roots := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(h.dir, e.Name(), rootName))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		roots[e.Name()] = string(text)
	}
	return roots, nil
}
