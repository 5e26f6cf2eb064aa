package runtime

import (
	"slices"
	"testing"
)

func TestToolsAreOfflineOnlyWithoutANetwork(t *testing.T) {
	for name, test := range map[string]struct {
		env  Environment
		own  []Variable
		want string
	}{
		"no network":              {Environment{Isolation: IsolationNamespaces}, nil, "GOPROXY=off"},
		"exposed ports":           {Environment{Isolation: IsolationGVisor, Network: Network{ExposedPorts: []int{80}}}, nil, "GOPROXY=off"},
		"a network":               {Environment{Isolation: IsolationCluster, Network: Network{Access: true}}, nil, ""},
		"no isolation":            {Environment{Isolation: IsolationNone}, nil, ""},
		"the image's value":       {Environment{Isolation: IsolationCluster, Pin: ImagePin{Variables: []Variable{{Name: "GOPROXY", Value: "file:///mods"}}}}, nil, "GOPROXY=file:///mods"},
		"the environment's value": {Environment{Isolation: IsolationNamespaces}, []Variable{{Name: "GOPROXY", Value: ""}}, "GOPROXY="},
	} {
		all, _ := test.env.CommandVariables(false, false, test.own)
		got := ""
		if i := slices.IndexFunc(all, func(v string) bool { return len(v) >= 8 && v[:8] == "GOPROXY=" }); i >= 0 {
			got = all[i]
		}
		if got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
