package main

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"testing"

	"github.com/rockpool/rockpool/local/sandbox/maker"
	"github.com/rockpool/rockpool/local/sandbox/spec"
)

// The maker implements these parts of a spec and no others. A new part of specs must be added to
// the maker first, then here.
func TestMakerImplementsEachPartOfTheSpec(t *testing.T) {
	for _, test := range []struct {
		part func(spec.Sandbox) any
		want []string
	}{
		{func(s spec.Sandbox) any { return *spec.New(s, spec.Machine{CoreMHz: 1000}) },
			[]string{"Version", "Process", "Root", "Hostname", "Mounts", "Linux"}},
		{func(s spec.Sandbox) any { return *spec.New(s, spec.Machine{CoreMHz: 1000}).Process },
			[]string{"Env", "Args", "Cwd", "NoNewPrivileges", "Rlimits", "Capabilities"}},
		{func(s spec.Sandbox) any { return *spec.New(s, spec.Machine{CoreMHz: 1000}).Linux },
			[]string{"UIDMappings", "GIDMappings", "Resources", "CgroupsPath", "Namespaces", "MaskedPaths", "ReadonlyPaths", "RootfsPropagation", "TimeOffsets"}},
	} {
		for _, s := range []spec.Sandbox{
			{Resources: spec.Resources{MemoryMiB: 64, Processes: 8, WorkspaceMiB: 1}, Group: "/rockpool/x", Resolver: "/resolver"},
			{Resources: spec.Resources{MemoryMiB: 64, Processes: 8, WorkspaceMiB: 1}, Group: "/rockpool/x", Root: spec.Root{Path: "/image", Image: true, Agent: "/agent"}},
		} {
			var got []string
			value := reflect.ValueOf(test.part(s))
			for i := range value.NumField() {
				if !value.Field(i).IsZero() {
					got = append(got, value.Type().Field(i).Name)
				}
			}
			slices.Sort(got)
			want := slices.Sorted(slices.Values(test.want))
			if !slices.Equal(got, want) {
				t.Errorf("%s has the parts %v, and the maker knows %v", value.Type(), got, want)
			}
		}
	}
}

// Where no process starts in the sandbox's cgroup, another one joins it, with an image that wasn't used.
func TestUnbornProcessJoinsItsGroup(t *testing.T) {
	for name, open := range map[string]func() (*os.File, error){
		"an image": func() (*os.File, error) { return os.Open(os.DevNull) },
		"no image": func() (*os.File, error) { return nil, nil }, //nolint:nilnil // as openImage
	} {
		var attempts []string
		pid, err := startOrJoin(maker.Sandbox{Group: "/x"}, open, func(s maker.Sandbox) (int, error) {
			attempts = append(attempts, fmt.Sprint(s.Group, s.Join))
			if s.Image != nil {
				if err := s.Image.Close(); err != nil { // as mounting uses it up
					t.Errorf("%s: attempt %d has a used one: %v", name, len(attempts), err)
				}
			}
			if len(attempts) == 1 {
				return 0, fmt.Errorf("%w: it is gone", maker.ErrUnborn)
			}
			return 7, nil
		})
		if want := []string{"/x[]", "[/x]"}; pid != 7 || err != nil || !slices.Equal(attempts, want) {
			t.Errorf("%s: got process %d, %v, in %q, want %q", name, pid, err, attempts, want)
		}
	}
}
