package server

import (
	"strings"
	"testing"

	"github.com/rockpool/rockpool/runtime"
)

func TestReady(t *testing.T) {
	type pools = map[runtime.EnvironmentID]runtime.PoolStatus
	for _, test := range []struct {
		name  string
		pools pools
		known int
		want  bool
	}{
		{"unknown pools: not ready", pools{}, 1, false},
		{"no idle runner: not ready", pools{"a": {Size: 2, Starting: 2}}, 1, false},
		{"one idle runner: ready", pools{"a": {Size: 2}, "b": {Size: 1, Idle: 1}}, 3, true},
		{"no runners wanted: ready", pools{"a": {Size: 0}}, 1, true},
		{"no environments: ready", pools{}, 0, true},
	} {
		if got := ready(test.pools, test.known); got != test.want {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

func TestReadyLineSaysWhatToDoNext(t *testing.T) {
	url := "http://127.0.0.1:8080"
	for _, test := range []struct {
		ids  []runtime.EnvironmentID
		says string
	}{
		{nil, "bin/rockpool env put"},
		{[]runtime.EnvironmentID{"c", "python", "shell"}, "environments: c, python, shell; try: bin/rockpool run hello.py"},
		{[]runtime.EnvironmentID{"shell"}, "bin/rockpool run --env shell -- echo hello"},
	} {
		var environments []runtime.Environment
		for _, id := range test.ids {
			environments = append(environments, runtime.Environment{ID: id})
		}
		line := readyLine("bin/rockpool", url, environments)
		if !strings.HasPrefix(line, "rockpool is ready: http://127.0.0.1:8080/graphql") || !strings.Contains(line, test.says) {
			t.Errorf("%q", line)
		}
		elsewhere := readyLine("bin/rockpool", "http://127.0.0.1:8081", environments)
		if strings.Count(elsewhere, " --server http://127.0.0.1:8081") != 1 || strings.Contains(line, "--server") {
			t.Errorf("%q %q", line, elsewhere)
		}
	}
}
