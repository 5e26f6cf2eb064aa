package engine

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

// Attacks records what came of carrying out the corpus of attacks. Its file in the data
// directory is written by the doctor and read by the server.
type Attacks struct {
	At        time.Time         `json:"at"`
	Version   string            `json:"version"` // of the server that was attacked
	Isolation runtime.Isolation `json:"tier"`
	Tried     int               `json:"tried"`
	Held      int               `json:"held"`
	Failed    []string          `json:"failed"` // the names of those that weren't held off
}

// failed reports whether not all were held off, or none was tried.
func (a *Attacks) failed() bool { return a.Tried == 0 || a.Held < a.Tried }

// attacksFile is where the last record of a tier is kept, in the data directory.
func attacksFile(data string, tier runtime.Isolation) string {
	return filepath.Join(data, "attacks-"+strings.ToLower(string(tier))+".json")
}

// Store writes the record into a data directory. The directory's owner, who may be less
// than root, can't have it written elsewhere: a link that is in its place is replaced.
func (a *Attacks) Store(data string) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	const mode = 0o644 // the server may be another user
	return renameio.WriteFile(attacksFile(data, a.Isolation), text, mode, renameio.WithTempDir(data), renameio.WithStaticPermissions(mode))
}

// LastAttacks returns the record of the tier where not all was held off, else of the one
// that was attacked last; nil if there is none.
func LastAttacks(data string) (*Attacks, error) {
	var last *Attacks
	for _, tier := range []runtime.Isolation{runtime.IsolationNamespaces, runtime.IsolationGVisor} {
		text, err := os.ReadFile(attacksFile(data, tier))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		attacks := &Attacks{}
		if err == nil {
			err = json.Unmarshal(text, attacks)
		}
		if err != nil {
			return nil, fmt.Errorf("the report of the last attacks: %w", err)
		}
		if last == nil || attacks.failed() && !last.failed() || attacks.failed() == last.failed() && attacks.At.After(last.At) {
			last = attacks
		}
	}
	return last, nil
}
