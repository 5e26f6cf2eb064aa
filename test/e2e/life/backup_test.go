package life

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"

	"github.com/rockpool/rockpool/test/e2e/bed"
)

// TestE2EBackupIsRestored backs up a running server as docs/guides/operating.md says, and starts
// another one with the backup.
func TestE2EBackupIsRestored(t *testing.T) {
	t.Parallel()
	p := bed.ServeBinary(t, bed.DataDir(t))
	p.Call(t, `mutation { putEnvironment(input: {id: "mine", poolSize: 1}) { created } }`, nil, nil)
	runner := p.ClaimUnreleased(t, "mine")
	done := p.Shell(t, runner, "echo kept")
	runs := p.Start(t, object{"runnerId": runner, "shell": "sleep 1000"})

	backup := t.TempDir()
	db, err := sql.Open("sqlite", filepath.Join(p.Data, "rockpool.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("VACUUM INTO ?", filepath.Join(backup, "rockpool.db")); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if err := os.CopyFS(filepath.Join(backup, "output"), os.DirFS(filepath.Join(p.Data, "output"))); err != nil {
		t.Error(err)
	}
	key, err := os.ReadFile(filepath.Join(p.Data, "signing.key"))
	if err == nil {
		err = os.WriteFile(filepath.Join(backup, "signing.key"), key, 0o600)
	}
	if err != nil {
		t.Error(err)
	}
	p.Finish(t)
	first := p.Cgroups

	data := bed.DataDir(t)
	if err := os.CopyFS(data, os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	p = bed.ServeBinary(t, data)
	if got := p.Await(t, done.Id); got.Outcome != "EXITED" || got.Stream("STDOUT") != "kept\n" {
		t.Errorf("what had ended is %+v", got)
	}
	if got := p.Await(t, runs); got.Outcome != "LOST" && got.Outcome != "RUNNER_GONE" {
		t.Errorf("what ran is %+v", got)
	}
	p.Full(t, "mine", 1)
	p.Finish(t)
	// The records name the cgroups of the first server.
	for _, trees := range []string{"/sys/fs/cgroup/*/", "/sys/fs/cgroup/"} {
		if left, err := filepath.Glob(trees + first); err != nil || len(left) > 0 {
			t.Errorf("left: %v, %v", left, err)
		}
	}
}
