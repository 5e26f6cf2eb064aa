package executor

import (
	"slices"
	"testing"

	"github.com/rockpool/rockpool/agent"
)

func TestImageVariablesReachCommands(t *testing.T) {
	i := imageOf([]string{"PATH=/opt/bin:/bin", "JAVA_HOME=/opt/java", "LANG=de_DE.UTF-8", "NOMAD_TOKEN=x", "VAULT_TOKEN=x", "HOSTNAME=h", "HOME=/root", "PWD=/app", "broken"},
		"/app", "/workspace", "/tmp")
	got := i.complete(agent.Start{Env: []string{"PATH=/bin", "LANG=C.UTF-8", "HOME=/workspace", "A=1"}, Defaults: []string{"PATH"}})
	if want := []string{"PATH=/opt/bin:/bin", "LANG=C.UTF-8", "HOME=/workspace", "A=1", "JAVA_HOME=/opt/java"}; !slices.Equal(got.Env, want) || got.Dir != "/app" {
		t.Errorf("%q in %q, want %q in /app", got.Env, got.Dir, want)
	}
	if got := i.complete(agent.Start{Dir: "x"}); got.Dir != "x" {
		t.Errorf("an execution's own directory becomes %q, want \"x\"", got.Dir)
	}
	for _, dir := range []string{"/", "/workspace", "/tmp/x"} {
		if got := imageOf(nil, dir, "/workspace", "/tmp").dir; got != "" {
			t.Errorf("%s is the image's directory, as %q, want \"\"", dir, got)
		}
	}
	var none *image
	if got := none.complete(agent.Start{Env: []string{"A=1"}}); len(got.Env) != 1 || got.Dir != "" {
		t.Errorf("without an image: %+v", got)
	}
}
