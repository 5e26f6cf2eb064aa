package store

import (
	"errors"
	"slices"

	sqlite "modernc.org/sqlite"
)

// SQLite's result codes (https://sqlite.org/rescode.html).
const (
	sqliteBusy       = 5
	sqliteNoMemory   = 7
	sqliteReadOnly   = 8
	sqliteInterrupt  = 9
	sqliteIO         = 10
	sqliteCorrupt    = 11
	sqliteFull       = 13
	sqliteCantOpen   = 14
	sqliteNoDatabase = 26
)

// hasCode reports whether err is an error of SQLite's with one of codes.
func hasCode(err error, codes ...int) bool {
	var q *sqlite.Error
	return errors.As(err, &q) && slices.Contains(codes, q.Code()&0xff)
}
