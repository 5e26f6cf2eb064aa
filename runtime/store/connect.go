package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
)

// A connector opens connections to the database file that the store opened.
type connector struct {
	sqlite driver.Driver
	source string
	intact func() error // why the file at the path isn't the one that the store opened; nil: it is
}

// openReads returns connections for reading. Each is opened by path when it is needed. If another
// file had taken that path, SQLite would write this database's log into it and damage both. So
// opening fails then.
func (d *sqliteDB) openReads(source string) *sql.DB {
	return sql.OpenDB(connector{d.writes.Driver(), source, d.intact})
}

// Connect implements driver.Connector.
func (c connector) Connect(context.Context) (driver.Conn, error) {
	if err := c.intact(); err != nil {
		return nil, err
	}
	return c.sqlite.Open(c.source)
}

// Driver implements driver.Connector.
func (c connector) Driver() driver.Driver { return c.sqlite }
