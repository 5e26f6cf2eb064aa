package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"

	"github.com/rockpool/rockpool/runtime"
)

// An AttackRun is the result of one run of all known attacks on this machine. The doctor stores it as a file in
// the data directory, and the server reads it.
type AttackRun struct {
	At        time.Time         `json:"at"`
	Version   string            `json:"version"` // of the attacked server
	Isolation runtime.Isolation `json:"tier"`
	Tried     int               `json:"tried"`
	Held      int               `json:"held"`
	Failed    []string          `json:"failed"` // names of the attacks that weren't blocked
}

// failed reports whether an attack wasn't blocked, or none was tried.
func (r *AttackRun) failed() bool { return r.Tried == 0 || r.Held < r.Tried }

func attackRunFile(data string, tier runtime.Isolation) string {
	return filepath.Join(data, "attacks-"+strings.ToLower(string(tier))+".json")
}

// Store writes the record into a data directory. It replaces a link in the file's place instead of
// following it, so that the directory's owner, who may have fewer rights than root, can't redirect
// the write.
func (r *AttackRun) Store(data string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	const mode = 0o644 // the server may be another user
	return renameio.WriteFile(attackRunFile(data, r.Isolation), text, mode, renameio.WithTempDir(data), renameio.WithStaticPermissions(mode))
}

// LastAttackRun returns the record of a tier on which an attack wasn't blocked, or else the latest one; nil
// if there is none.
func LastAttackRun(data string) (*AttackRun, error) {
	var last *AttackRun
	for _, tier := range []runtime.Isolation{runtime.IsolationNamespaces, runtime.IsolationGVisor} {
		text, err := os.ReadFile(attackRunFile(data, tier))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		record := &AttackRun{}
		if err == nil {
			err = json.Unmarshal(text, record)
		}
		if err != nil {
			return nil, fmt.Errorf("read the record of the last attack run (rockpool doctor --attack writes a new one): %w", err)
		}
		if last == nil || record.failed() && !last.failed() || record.failed() == last.failed() && record.At.After(last.At) {
			last = record
		}
	}
	return last, nil
}
