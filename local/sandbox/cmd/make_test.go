package main

import (
	"reflect"
	"slices"
	"testing"

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
