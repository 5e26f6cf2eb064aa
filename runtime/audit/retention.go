package audit

import (
	"context"
	"fmt"
	"time"
)

const (
	shortenEvery = time.Hour // between deletions of old entries
	shortenPiece = 500       // entries per transaction, which blocks all other writes
)

// shorten deletes entries older than Config.Keep, immediately and every hour, until ctx ends.
func (l *Log) shorten(ctx context.Context) {
	for tick := time.Tick(shortenEvery); ; {
		err := l.deleteOld(ctx)
		if ctx.Err() != nil {
			return
		}
		l.report(deleting, err)
		select {
		case <-tick:
		case <-ctx.Done():
			return
		}
	}
}

// deleteOld deletes the entries older than Keep, in pieces, so that no transaction delays other
// writes for long.
func (l *Log) deleteOld(ctx context.Context) error {
	before := l.clock.Now().Add(-l.config.Keep)
	for ctx.Err() == nil {
		n, err := l.config.Store.DeleteAudit(ctx, before, shortenPiece)
		if err != nil {
			return fmt.Errorf("shorten the audit log: %w", err)
		}
		if n < shortenPiece {
			return nil
		}
	}
	return nil
}
