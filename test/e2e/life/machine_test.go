package life

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
	"github.com/rockpool/rockpool/test/wait"
)

// wantOnly fails the test unless the machine has exactly the processes and cgroups of these
// runners. It waits for those that are being removed.
func wantOnly(t testing.TB, p *bed.Process, runners map[string]bed.Seen) {
	t.Helper()
	var wrong []string
	defer func() {
		if len(wrong) > 0 {
			t.Logf("wrong: %q", wrong)
		}
	}()
	wait.For(t, "the machine has only the listed runners", func() bool {
		wrong = nil
		directories := map[string]bool{}
		for _, left := range bed.Leftovers(p.Data, p.Cgroups) {
			kind, path, _ := strings.Cut(left, " ")
			if id := filepath.Base(path); kind == "directory" || kind == "cgroup" {
				if _, known := runners[id]; !known {
					wrong = append(wrong, left)
				}
				directories[id] = directories[id] || kind == "directory"
			}
		}
		slots := 0
		links, _ := filepath.Glob("/run/rockpool/uids/*")
		for _, link := range links {
			if holder, err := os.Readlink(link); err == nil && strings.HasPrefix(holder, p.Data+"/") {
				slots++
			}
		}
		for id := range runners {
			if !directories[id] {
				wrong = append(wrong, "no directory of "+id)
			}
		}
		if slots != len(runners) {
			wrong = append(wrong, fmt.Sprintf("%d ranges of user ids for %d runners", slots, len(runners)))
		}
		return len(wrong) == 0
	})
}
