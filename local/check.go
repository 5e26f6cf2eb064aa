package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/rockpool/rockpool/local/taskrunner"
	"github.com/rockpool/rockpool/runtime"
)

// Check finds out by trying whether this machine can keep programs apart. Its
// error names everything that is missing, one per line, with what to do. It
// makes and removes one sandbox, which no list shows. STORAGE_FULL: only the
// disk's room is missing, without which nothing new can be made.
func (c *Cluster) Check(ctx context.Context) error {
	missing := c.missing()
	if len(missing) > 0 {
		return errors.Join(missing...)
	}
	err := c.trySandbox(ctx)
	if isFull(err) {
		return runtime.Wrap(runtime.CodeStorageFull, err, "no runner can be started, since the server's disk is full: free some room in its data directory")
	}
	if err != nil {
		return fmt.Errorf("a sandbox can't be made on this machine, although all it needs seems to be there: %w", err)
	}
	return nil
}

// missing returns what can be told without making a sandbox.
func (c *Cluster) missing() []error {
	var all []error
	lacks := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	rootless := os.Geteuid() != 0 && c.direct != nil
	if lacking := c.lacking(); rootless && lacking != "" && !c.config.MissingLimits {
		lacks("%s: start the server with systemd-run --user --scope -p Delegate=yes, or as root, or give it a helper with --sandbox-helper; or accept it with --accept-missing-limits", lacking)
	}
	if text, err := os.ReadFile("/proc/sys/user/max_user_namespaces"); err != nil || strings.TrimSpace(string(text)) == "0" {
		lacks("no user namespaces: set the sysctl user.max_user_namespaces to more than 0")
	}
	for _, kind := range []string{"user", "pid", "mnt", "ipc", "uts", "net", "cgroup", "time"} {
		if _, err := os.Stat("/proc/self/ns/" + kind); err != nil {
			lacks("the kernel has no %s namespaces: use a kernel of version 5.6 or later that has them", kind)
		}
	}
	controllers := []string{"memory", "pids", "cpu"}
	if c.direct == nil || rootless {
		controllers = nil // only the helper can find out, and does for the sandbox that is tried
	}
	for _, controller := range controllers {
		if err := c.tryController(controller); err != nil {
			lacks("no limits of %s: %w; mount the cgroup controller so that root can write to it (a container needs --privileged and --cgroupns=private)", controller, err)
		}
	}
	if c.unready != nil {
		all = append(all, c.unready)
	}
	return all
}

// checkGroup is the group that every server tries below its parent: the next server
// removes what one left that was killed meanwhile.
const checkGroup = "check"

// tryController makes and removes a group where a controller's are.
func (c *Cluster) tryController(name string) error {
	tree, ok := c.trees.Controller(name)
	if !ok {
		return errors.New("the kernel shows no such cgroup controller")
	}
	group := path.Join("/", c.config.CgroupParent, checkGroup)
	if err := tree.Prepare(group); err != nil {
		return err
	}
	err := os.Remove(filepath.Join(tree.Mount, group))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // another server that tries has removed it
	}
	return err
}

// trySandbox starts a runner as its task would, waits for its agent, and
// removes it. The next server removes what this one can't.
func (c *Cluster) trySandbox(ctx context.Context) error {
	env := runtime.Environment{
		ID: "check", Revision: 1, RunnerRevision: 1,
		Image: runtime.DefaultImage, Isolation: runtime.IsolationNamespaces, Resources: runtime.DefaultResources(),
	}
	r := runtime.Runner{ID: runtime.NewRunnerID(), Environment: env, State: runtime.RunnerStarting}
	e := c.newEntry(r, runtime.PriorityRefill, private{})
	place, starter := &placeHook{c, e}, &driver{c, e}
	var placed taskrunner.PrestartResponse
	err := place.Prestart(ctx, taskrunner.PrestartRequest{}, &placed)
	if err == nil {
		err = c.buildRoot(ctx)
	}
	values := placed.Values
	if err == nil {
		var h taskrunner.Handle
		if h, err = starter.Start(ctx, taskrunner.StartRequest{Values: values}); err == nil {
			err = c.ping(ctx, e.id)
			h.Close()
		}
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanWithin)
	defer cancel()
	if left := starter.Destroy(clean); left != nil {
		return errors.Join(err, left) // the next server finds it by its directory, which keeps its user ids
	}
	return errors.Join(err, place.Stop(clean, taskrunner.StopRequest{Values: values}))
}
