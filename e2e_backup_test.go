package main

import (
	"database/sql"
	"os"
	"path/filepath"
	"testing"
)

// TestE2EBackupComesBack backs a server up while it runs, as docs/operations.md
// says, and starts another one with that.
func TestE2EBackupComesBack(t *testing.T) {
	t.Parallel()
	p := serveBinary(t, dataDir(t))
	p.call(t, `mutation { putEnvironment(input: {id: "mine", poolSize: 1}) { created } }`, nil, nil)
	runner := p.claimLoosely(t, "mine")
	done := p.shell(t, runner, "echo kept")
	runs := p.start(t, object{"runnerId": runner, "shell": "sleep 1000"})

	backup := t.TempDir()
	db, err := sql.Open("sqlite", filepath.Join(p.data, "rockpool.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("VACUUM INTO ?", filepath.Join(backup, "rockpool.db")); err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if err := os.CopyFS(filepath.Join(backup, "output"), os.DirFS(filepath.Join(p.data, "output"))); err != nil {
		t.Error(err)
	}
	key, err := os.ReadFile(filepath.Join(p.data, "signing.key"))
	if err == nil {
		err = os.WriteFile(filepath.Join(backup, "signing.key"), key, 0o600)
	}
	if err != nil {
		t.Error(err)
	}
	p.finish(t)

	data := dataDir(t)
	if err := os.CopyFS(data, os.DirFS(backup)); err != nil {
		t.Fatal(err)
	}
	p = serveBinary(t, data)
	if got := p.await(t, done.ID); got.Outcome != "EXITED" || got.stream("STDOUT") != "kept\n" {
		t.Errorf("what had ended is %+v", got)
	}
	if got := p.await(t, runs); got.Outcome != "LOST" && got.Outcome != "RUNNER_GONE" {
		t.Errorf("what ran is %+v", got)
	}
	p.full(t, "mine", 1)
	p.finish(t)
}
