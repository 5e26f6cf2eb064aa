package poseidon

import (
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

func TestPermissions(t *testing.T) {
	for mode, want := range map[uint32]string{
		0o744: "rwxr--r--", 0: "---------", 0o1777: "rwxrwxrwt", 0o1776: "rwxrwxrwT", 0o4755: "rwsr-xr-x", 0o4644: "rwSr--r--", 0o2755: "rwxr-sr-x", 0o2745: "rwxr-Sr-x",
	} {
		if got := permissions(mode); got != want {
			t.Errorf("%o is %s, not %s", mode, got, want)
		}
	}
}

func TestPathsAreRelativeToTheWorkingDirectory(t *testing.T) {
	for _, test := range []struct {
		dir, path, want string
		emptied         bool
	}{
		{"", "x/y", "x/y", false},
		{"", "./*", "./*", true},
		{"", "*", "*", false},
		{"", "x/*", "x/*", false},
		{"", "./", "./", true},
		{"", ".", ".", true},
		{"", "x/..", "x/..", true},
		{"", "", "", false}, // which the engine refuses
		{"", "/workspace/", "/workspace/", true},
		{"/workspace", "../x", "../x", false},
		{"/home/me", "x", "/home/me/x", false},
		{"/home/me", "./*", "/home/me/*", true},
		{"/home/me", "./", "/home/me", true},
		{"/home/me", "/home/me", "/home/me", true},
		{"/home/me", "/etc/x", "/etc/x", false},
		{"/home/me", "../../../x", "/x", false},
	} {
		runner := runtime.Runner{Environment: runtime.Environment{Pin: runtime.ImagePin{WorkingDirectory: test.dir}}}
		if got := at(runner, test.path); got != test.want {
			t.Errorf("%q in %q is %q, not %q", test.path, test.dir, got, test.want)
		}
		if got := emptied(runner, test.path); got != test.emptied {
			t.Errorf("to delete %q in %q empties the directory: %v, want %v", test.path, test.dir, got, test.emptied)
		}
	}
}

// An impossible path costs a few updates, not one for each file. The number of updates is limited. An
// error that concerns all files ends them.
func TestUpdatesInParts(t *testing.T) {
	for name, test := range map[string]struct {
		files, bad int
		other      error // of the last file
		updates    int   // at most
		updated    int   // at least
		first      string
	}{
		"none":                {10_000, 0, nil, 1, 10_000, ""},
		"one of many":         {10_000, 1, nil, 30, 9_999, "0"},
		"all of some":         {300, 300, nil, 600, 0, "0"},
		"too many":            {10_000, 10_000, nil, maxParts, 0, "0"},
		"one":                 {1, 1, nil, 1, 0, "0"},
		"the runner has gone": {100, 1, runtime.Gone("r"), 15, 98, "r"},
	} {
		updates, updated := 0, 0
		err := inParts(test.files, func(from, to int) error {
			updates++
			if from < test.bad && to-from == 1 {
				return runtime.Errorf(runtime.CodeStorageFull, "%d", from)
			}
			if from < test.bad {
				return runtime.Errorf(runtime.CodeFileError, "of several")
			}
			if to == test.files && test.other != nil {
				return test.other
			}
			updated += to - from
			return nil
		})
		if updates > test.updates || updated < min(test.updated, test.files-test.bad) && test.other == nil || (err == nil) != (test.first == "") || err != nil && !strings.Contains(err.Error(), test.first) {
			t.Errorf("%s: %d updates, %d files are updated: got %v, want %q", name, updates, updated, err, test.first)
		}
		if test.other != nil && runtime.CodeOf(err) != runtime.CodeOf(test.other) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestListedFiles(t *testing.T) {
	for kind, want := range map[runtime.FileType]string{runtime.FileRegular: "-", runtime.FileDirectory: "d", runtime.FileLink: "l", runtime.FileOther: "p"} {
		got := listed("name", runtime.File{Path: "other", Type: kind, Size: 7, LinkTarget: "to", Mode: 0o600, Owner: "o", Group: "g"})
		if got.EntryType != want || got.Name != "name" || got.Size != 7 || got.LinkTarget != "to" || got.Permissions != "rw-------" || got.Owner != "o" || got.Group != "g" {
			t.Errorf("%s is listed as %+v", kind, got)
		}
	}
}
