package clustertest

import (
	"bytes"
	"context"
	"path"
	"slices"
	"strings"

	"github.com/rockpool/rockpool/agent"
)

// Search implements serve.Executor. There are no directories.
func (h *programs) Search(_ context.Context, search agent.Search) (found agent.Found, err error) {
	err = h.List(agent.ListDir{}, func(info agent.FileInfo) error {
		if named, _ := path.Match(search.Name, path.Base(string(info.Path))); search.Name != "" && !named {
			return nil
		}
		if len(search.Text) == 0 {
			found.Matches = append(found.Matches, agent.Match{File: info})
			return nil
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		for i, line := range strings.Split(string(h.files[string(info.Path)]), "\n") {
			if strings.Contains(line, string(search.Text)) {
				found.Matches = append(found.Matches, agent.Match{File: info, Line: i + 1, Text: []byte(line)})
			}
		}
		return nil
	})
	if len(found.Matches) > search.Most {
		found.Matches, found.Limit = found.Matches[:search.Most], agent.LimitMatches
	}
	return found, err
}

// change records a change of a file. The caller holds mu.
func (h *programs) change(kind agent.ChangeKind, path string) {
	h.changes = append(h.changes, agent.Change{Path: []byte(path), Kind: kind})
	close(h.news)
	h.news = make(chan struct{})
}

// Watch implements serve.Executor. The directory "flood" changes all the time.
func (h *programs) Watch(ctx context.Context, watch agent.Watch, each func(agent.Changes) error) error {
	if watch.Path == "none" {
		return &agent.Error{Code: agent.ErrNotFound, Path: watch.Path, Message: "no such file or directory"}
	}
	h.mu.Lock()
	reported := len(h.changes)
	h.mu.Unlock()
	var some []agent.Change
	for {
		if err := each(agent.Changes{Changes: some}); err != nil {
			return err
		}
		h.mu.Lock()
		some, reported = slices.Clone(h.changes[reported:]), len(h.changes)
		news := h.news
		h.mu.Unlock()
		switch {
		case len(some) > 0:
		case watch.Path == "flood":
			some = []agent.Change{{Path: bytes.Repeat([]byte("x"), 200), Kind: agent.ChangeChanged}}
		default:
			select {
			case <-news:
			case <-ctx.Done():
				return nil
			}
		}
	}
}
