package identity

import (
	"cmp"
	"context"
	"slices"

	"github.com/rockpool/rockpool/runtime/access"
)

const maxSessions = 20

// endOldest makes room for one more session of a person. It deletes ended sessions first, then the
// oldest ones. A session that made tokens is ended but not deleted: see RevokeToken. Its caller
// holds changing.
func (b *Registry) endOldest(ctx context.Context, subject string) error {
	now := b.clock.Now()
	var all, ending []*liveToken
	var deleting []string
	b.mu.RLock()
	makers := b.makers()
	for _, t := range b.tokens {
		if t.Kind == access.KindSession && t.Subject == subject {
			all = append(all, t)
		}
	}
	b.mu.RUnlock()
	// Ended sessions come first, then the oldest.
	slices.SortFunc(all, func(a, b *liveToken) int {
		if aEnded, bEnded := a.Ended(now), b.Ended(now); aEnded != bEnded {
			if aEnded {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.ID, b.ID)
	})
	for _, t := range all[:max(0, len(all)-maxSessions+1)] {
		if makers[t.ID] {
			ending = append(ending, t)
		} else {
			deleting = append(deleting, t.ID)
		}
	}
	if _, err := b.revoke(ctx, ending); err != nil {
		return err
	}
	return b.delete(ctx, deleting)
}

// makers returns the ids of the tokens that made others. The caller holds mu.
func (b *Registry) makers() map[string]bool {
	makers := map[string]bool{}
	for _, t := range b.tokens {
		makers[t.CreatedBy] = true
	}
	return makers
}

// delete deletes tokens, which ends them. Its caller holds changing.
func (b *Registry) delete(ctx context.Context, ids []string) error {
	if len(ids) == 0 {
		return nil
	}
	if err := b.config.Store.DeleteTokens(ctx, ids); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		b.tokens[id].end(errRevoked)
		delete(b.tokens, id)
	}
	return nil
}
