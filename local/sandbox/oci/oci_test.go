package oci_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rockpool/rockpool/local/sandbox/oci"
	"github.com/rockpool/rockpool/test/need"
)

func TestRootOnly(t *testing.T) {
	need.Sandboxes(t)
	const somebody = 61_236
	for name, row := range map[string]struct {
		change func(dir, file string) error
		dir    bool // only root can change it
		file   bool // only root can change the file in it
	}{
		"unchanged":                    {func(string, string) error { return nil }, true, true},
		"another user's directory":     {func(dir, _ string) error { return os.Chown(dir, somebody, -1) }, false, false},
		"another user's file":          {func(_, file string) error { return os.Chown(file, somebody, -1) }, true, false},
		"a group's directory":          {func(dir, _ string) error { return os.Chmod(dir, 0o775) }, false, false},
		"a group's file":               {func(_, file string) error { return os.Chmod(file, 0o664) }, true, false},
		"everybody's directory":        {func(dir, _ string) error { return os.Chmod(dir, 0o757) }, false, false},
		"everybody's sticky directory": {func(dir, _ string) error { return os.Chmod(dir, 0o777|os.ModeSticky) }, false, true},
		"another user's sticky directory": {func(dir, _ string) error {
			return errors.Join(os.Chmod(dir, 0o777|os.ModeSticky), os.Chown(dir, somebody, -1))
		}, false, false},
		"a link in the way":     {func(dir, _ string) error { return errors.Join(os.Rename(dir, dir+"2"), os.Symlink(dir+"2", dir)) }, false, false},
		"a link that is root's": {func(_, file string) error { return errors.Join(os.Rename(file, file+"2"), os.Symlink(file+"2", file)) }, true, false},
		"no directory":          {func(dir, _ string) error { return os.RemoveAll(dir) }, false, false},
	} {
		dir := filepath.Join(t.TempDir(), "dir")
		file := filepath.Join(dir, "file")
		if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(file, nil, 0o644), row.change(dir, file)); err != nil {
			t.Fatal(err)
		}
		if err := oci.RootOnly(dir); (err == nil) != row.dir {
			t.Errorf("%s: the directory: %v", name, err)
		}
		if err := oci.RootOnly(file); (err == nil) != row.file {
			t.Errorf("%s: the file: %v", name, err)
		}
	}
}
