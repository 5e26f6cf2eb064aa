package commands

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"

	"github.com/rockpool/rockpool/test/wait"
)

// TestE2ECompletion presses the tab key in real shells.
func TestE2ECompletion(t *testing.T) {
	b := bed.Open(t)
	b.Put(t, object{"id": "completed-1", "poolSize": 0})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "my file.py"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, shell := range [][]string{
		{"bash", "--norc", "--noprofile", "-i"},
		{"zsh", "-f", "-i"},
	} {
		if _, err := exec.LookPath(shell[0]); err != nil {
			t.Fatalf("this test needs %s: apt-get install %s", shell[0], shell[0])
		}
		s := onScreen(t, []string{
			"ROCKPOOL_SERVER=" + b.Address, "PATH=" + filepath.Dir(bed.Rockpool(t)) + ":" + os.Getenv("PATH"),
			"TERM=dumb", "PS1=ready> ", "HOME=" + dir, "ROCKPOOL_COMPLETE_WITHIN=" + wait.Limit.String(),
		}, shell[0], shell[1:]...)
		s.sees(t, "ready> ")
		setup := "cd " + dir + "; source <(rockpool completion bash); bind 'set bell-style none'; echo se''t\r"
		if shell[0] == "zsh" {
			setup = "cd " + dir + "; autoload -U compinit; compinit -u; source <(rockpool completion zsh); unsetopt beep; echo se''t\r"
		}
		s.types(t, setup)
		s.sees(t, "set\r\n")
		s.sees(t, "ready> ")
		for _, test := range []struct{ typed, becomes string }{
			{"rockpool env sh\t", "rockpool env show "},
			{"rockpool run --env compl\t", "rockpool run --env completed-1 "},
			{"rockpool run --env=compl\t", "rockpool run --env=completed-1 "},
			{"rockpool env show compl\t", "rockpool env show completed-1 "},
			{"rockpool run -e completed-1 my\t", `rockpool run -e completed-1 my\ file.py `},
			{"rockpool env list --output ya\t", "rockpool env list --output yaml "},
			{"rockpool env list --js\t", "rockpool env list --json "},
			{"rockpool exec list --outcome TI\t", "rockpool exec list --outcome TIME_LIMIT "},
		} {
			s.types(t, test.typed)
			s.sees(t, test.becomes)
			s.types(t, "\x15echo do''ne\r") // Ctrl-U empties the line
			s.sees(t, "done\r\n")
		}
		s.types(t, "exit 0\r")
		s.ends(t, 0)
	}
}
