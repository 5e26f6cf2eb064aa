package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/rockpool/rockpool/local/sandbox/helper"
	"github.com/rockpool/rockpool/test/networktest"
)

// Only root may write to the directory that root directories are mounted in.
func TestOnlyRootCanWriteToTheMountDirectory(t *testing.T) {
	if !networktest.Alone(t) {
		return
	}
	c := helper.Config{Root: t.TempDir()}
	if err := os.Mkdir(filepath.Join(c.Root, "there"), 0o755); err != nil {
		t.Fatal(err)
	}
	run := filepath.Dir(rootMount)
	for name, row := range map[string]struct {
		change func() error
		fine   bool
	}{
		"no directory":        {func() error { return nil }, true},
		"made under a umask":  {func() error { return os.Mkdir(run, 0o700) }, true},
		"another user's":      {func() error { return dirAt(run, other) }, false},
		"a group may write":   {func() error { return errors.Join(os.Mkdir(run, 0), os.Chmod(run, 0o775)) }, false},
		"everybody may write": {func() error { return errors.Join(os.Mkdir(run, 0), os.Chmod(run, 0o777|os.ModeSticky)) }, false},
		"a link":              {func() error { return errors.Join(os.Mkdir("/run/elsewhere", 0o755), os.Symlink("elsewhere", run)) }, false},
		"everybody's /run":    {func() error { return errors.Join(os.Mkdir(run, 0o755), os.Chmod("/run", 0o777)) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := errors.Join(unix.Mount("run", "/run", "tmpfs", 0, "mode=755"), row.change()); err != nil {
				t.Fatal(err)
			}
			err := mountRoot(c, &helper.Request{}, &specs.Spec{})
			_, there := os.Stat(filepath.Join(rootMount, "there"))
			if row.fine != (err == nil) || row.fine != (there == nil) {
				t.Errorf("%v; present: %v; want success: %t", err, there, row.fine)
			}
			var final finalError
			if !row.fine && !errors.As(err, &final) {
				t.Errorf("it would be tried again: %v", err)
			}
		})
	}
}
