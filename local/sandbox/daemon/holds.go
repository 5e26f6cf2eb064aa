package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/rockpool/rockpool/local/uids"
)

// holds is what the helper holds for sandboxes: a directory for each, which reserves the range of
// user ids and names the root directory that the sandbox uses.
type holds struct {
	dir    string
	ranges *uids.Ranges
}

// Names in a sandbox's directory.
const (
	slotName = "slot"
	rootName = "root"
)

// take reserves a range of user ids for a sandbox that has none.
func (h holds) take(id, root string) (slot int, err error) {
	dir := filepath.Join(h.dir, id)
	if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
		return 0, errors.New("the sandbox exists already: remove it first")
	} else if err != nil {
		return 0, err
	}
	if err := os.WriteFile(filepath.Join(dir, rootName), []byte(root), 0o600); err != nil {
		return 0, err
	}
	if slot, err = h.ranges.Take(dir); err != nil {
		return 0, fmt.Errorf("no range of user ids is free for it: %w", err)
	}
	return slot, os.WriteFile(filepath.Join(dir, slotName), []byte(strconv.Itoa(slot)), 0o600)
}

// has reports whether something is held for a sandbox, whether the sandbox exists or not.
func (h holds) has(id string) (bool, error) {
	_, err := os.Lstat(filepath.Join(h.dir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (h holds) slot(id string) (int, error) {
	text, err := os.ReadFile(filepath.Join(h.dir, id, slotName))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// release releases what is held for a sandbox that has ended. If the helper was killed before it
// wrote the range's number, the file is missing or empty; then the range is free as soon as its
// holder's directory is gone.
func (h holds) release(id string) error {
	dir := filepath.Join(h.dir, id)
	if text, err := os.ReadFile(filepath.Join(dir, slotName)); err == nil && len(text) > 0 {
		slot, err := strconv.Atoi(string(text))
		if err == nil {
			err = h.ranges.Release(slot, dir)
		}
		if err != nil {
			return fmt.Errorf("release its user ids: %w", err)
		}
	}
	return os.RemoveAll(dir)
}

// all returns the root directory of each sandbox that something is held for.
func (h holds) all() (map[string]string, error) {
	entries, err := os.ReadDir(h.dir)
	if err != nil {
		return nil, err
	}
	roots := map[string]string{}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(h.dir, e.Name(), rootName))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		roots[e.Name()] = string(text)
	}
	return roots, nil
}
