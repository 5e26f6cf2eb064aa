package sandboxtest

import "testing"

// Deaths are the stages of a create at which a helper of [Dying] is killed.
var Deaths = []string{"state", "process", "checked", "running"}

// Dying returns a rockpool-sandbox that gets SIGKILL when a create reaches a stage. At "state" the
// directory of its state exists; at "process" its first process exists, and waits. At "checked" its
// limits were read back and its network exists; at "running" its agent runs.
func Dying(t testing.TB, stage string) []byte {
	t.Helper()
	return helperWithout(t, "life:"+stage)
}

// Straying returns a rockpool-sandbox whose sandboxes' first processes move to another cgroup,
// "elsewhere" next to their own, before their limits are read back.
func Straying(t testing.TB) []byte {
	t.Helper()
	return helperWithout(t, "staying")
}

// faultEdits add the faults of [Dying] and [Straying].
var faultEdits = []edit{
	{"local/sandbox/cmd/fault.go", "", `package main

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/cgroup"
)

func dieAt(stage string) {
	if isWithout("life:" + stage) {
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
		select {}
	}
}

func stray(trees cgroup.Hierarchies, group string, pid int) error {
	if !isWithout("staying") {
		return nil
	}
	tree, ok := trees.Controller("pids")
	if !ok {
		return errors.New("no pids controller")
	}
	return os.WriteFile(filepath.Join(tree.Mount, filepath.Dir(group), "elsewhere", "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}
`},
	{"local/sandbox/cmd/make.go", `	pid, err := startOrJoin(`, `	dieAt("state")
	pid, err := startOrJoin(`},
	{"local/sandbox/cmd/make.go", `Check: d.check,`, `Check: func(pid int) error {
			dieAt("process")
			if err := stray(trees, c.Group(q.ID), pid); err != nil {
				return err
			}
			defer dieAt("checked")
			return d.check(pid)
		},`},
	{"local/sandbox/cmd/make.go", `	if answer, err = answered(`, `	dieAt("running")
	if answer, err = answered(`},
	{"local/sandbox/cmd/create.go", `	null, err := os.OpenFile(os.DevNull`, `	dieAt("state")
	null, err := os.OpenFile(os.DevNull`},
	{"local/sandbox/cmd/create.go", `	groups, err := check(state.InitProcessPid)`, `	dieAt("process")
	if err := stray(trees, c.Group(q.ID), state.InitProcessPid); err != nil {
		return helper.Answer{}, err
	}
	groups, err := check(state.InitProcessPid)`},
	{"local/sandbox/cmd/create.go", `	if err := container.Exec(); err != nil {`, `	dieAt("checked")
	if err := container.Exec(); err != nil {`},
	{"local/sandbox/cmd/create.go", `	return helper.Answer{PID: state.InitProcessPid, Start`, `	dieAt("running")
	return helper.Answer{PID: state.InitProcessPid, Start`},
}
