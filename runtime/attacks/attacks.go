// Package attacks keeps the record of the last attacks that were carried out on this machine.
// The doctor writes it, and the server reads it.
package attacks

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

// A Record is what came of carrying out the corpus of attacks. It is a file in the data
// directory.
type Record struct {
	At        time.Time         `json:"at"`
	Version   string            `json:"version"` // of the server that was attacked
	Isolation runtime.Isolation `json:"tier"`
	Tried     int               `json:"tried"`
	Held      int               `json:"held"`
	Failed    []string          `json:"failed"` // the names of those that weren't held off
}

// failed reports whether not all were held off, or none was tried.
func (r *Record) failed() bool { return r.Tried == 0 || r.Held < r.Tried }

// file is where the last record of a tier is kept, in the data directory.
func file(data string, tier runtime.Isolation) string {
	return filepath.Join(data, "attacks-"+strings.ToLower(string(tier))+".json")
}

// Store writes the record into a data directory. The directory's owner, who may be less
// than root, can't have it written elsewhere: a link that is in its place is replaced.
func (r *Record) Store(data string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	const mode = 0o644 // the server may be another user
	return renameio.WriteFile(file(data, r.Isolation), text, mode, renameio.WithTempDir(data), renameio.WithStaticPermissions(mode))
}

// Last returns the record of the tier where not all was held off, else of the one
// that was attacked last; nil if there is none.
func Last(data string) (*Record, error) {
	var last *Record
	for _, tier := range []runtime.Isolation{runtime.IsolationNamespaces, runtime.IsolationGVisor} {
		text, err := os.ReadFile(file(data, tier))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		record := &Record{}
		if err == nil {
			err = json.Unmarshal(text, record)
		}
		if err != nil {
			return nil, fmt.Errorf("the report of the last attacks: %w", err)
		}
		if last == nil || record.failed() && !last.failed() || record.failed() == last.failed() && record.At.After(last.At) {
			last = record
		}
	}
	return last, nil
}
