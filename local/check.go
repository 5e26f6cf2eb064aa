package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/rockpool/rockpool/local/sandbox"
	"github.com/rockpool/rockpool/runtime"
)

// Check finds out by trying whether this machine can keep programs apart. Its
// error names everything that is missing, one per line, with what to do. It
// makes and removes one sandbox, which no list shows.
func (c *Cluster) Check(ctx context.Context) error {
	missing := c.missing()
	if len(missing) > 0 {
		return errors.Join(missing...)
	}
	if err := c.trySandbox(ctx); err != nil {
		return fmt.Errorf("a sandbox can't be made on this machine, although all it needs seems to be there: %w", err)
	}
	return nil
}

// missing returns what can be told without making a sandbox.
func (c *Cluster) missing() []error {
	var all []error
	lacks := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	if os.Geteuid() != 0 {
		lacks("not root: runners need users and control groups of their own; start the server as root (with sudo)")
	}
	if text, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err != nil || strings.TrimSpace(string(text)) == "0" {
		lacks("no user namespaces: set the sysctl user.max_user_namespaces to more than 0")
	}
	for _, kind := range []string{"user", "pid", "mnt", "ipc", "uts", "net", "cgroup", "time"} {
		if _, err := os.Stat("/proc/self/ns/" + kind); err != nil {
			lacks("the kernel has no %s namespaces: use a kernel of version 5.6 or later that has them", kind)
		}
	}
	for _, controller := range []string{"memory", "pids", "cpu"} {
		if err := c.tryController(controller); err != nil {
			lacks("no limits of %s: %w; mount the cgroup controller so that root can write to it (a container needs --privileged and --cgroupns=private)", controller, err)
		}
	}
	if c.unready != nil {
		all = append(all, c.unready)
	}
	return all
}

// tryController makes and removes a group where a controller's are.
func (c *Cluster) tryController(name string) error {
	tree, ok := c.trees.Controller(name)
	if !ok {
		return errors.New("the kernel shows no such cgroup controller")
	}
	at := filepath.Join(tree.Mount, c.config.CgroupParent, "check-"+string(runtime.NewRunnerID()))
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	return os.Remove(at)
}

// trySandbox starts a runner as Start does, waits for its agent, and removes
// it.
func (c *Cluster) trySandbox(ctx context.Context) error {
	env := runtime.Environment{
		ID: "check", Revision: 1, RunnerRevision: 1,
		Image: runtime.DefaultImage, Isolation: runtime.IsolationNamespaces, Resources: runtime.DefaultResources(),
	}
	id := runtime.NewRunnerID()
	e := newEntry(runtime.Runner{ID: id, Environment: env, State: runtime.RunnerStarting}, 0)
	close(e.recorded)
	dir := c.runnerDir(id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	slot, err := c.ranges.Take(dir)
	if err != nil {
		_ = os.RemoveAll(dir)
		return err
	}
	e.private = private{Slot: slot, Group: sandbox.Group(c.config.CgroupParent, string(id))}
	e.touched = true
	_, err = c.create(ctx, e)
	if err == nil {
		err = c.ping(ctx, id)
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanWithin)
	defer cancel()
	return errors.Join(err, c.tearDown(clean, e))
}
