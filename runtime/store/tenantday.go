package store

import (
	"context"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/store/database"
)

const keepDays = 400

// A TenantDay is the usage of a tenant's executions that ended on one day (UTC).
type TenantDay struct {
	Tenant      runtime.TenantID
	Executions  int64
	CPU         time.Duration // user and system, in microseconds
	OutputBytes int64
}

// dayOf returns the day of t in UTC as stored. Days sort by time.
func dayOf(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// DayUse returns the usage of all tenants on the UTC day of day, ordered by tenant. A tenant
// without ended executions has no entry. Usage is kept for 400 days.
func (s *Store) DayUse(ctx context.Context, day time.Time) ([]TenantDay, error) {
	var all []TenantDay
	err := s.db.Each(ctx, "read what tenants used", func(scan func(...any) error) error {
		var u TenantDay
		var micros int64
		err := scan(&u.Tenant, &u.Executions, &micros, &u.OutputBytes)
		u.CPU = time.Duration(micros) * time.Microsecond
		all = append(all, u)
		return err
	}, "SELECT tenant, executions, cpu_us, output_bytes FROM tenant_days WHERE day = $1 ORDER BY tenant", dayOf(day))
	return all, err
}

// addToDay adds a finished execution to its tenant's day. The first one of each day, and of each
// server, also deletes days that are too old.
func (s *Store) addToDay(tx *database.Tx, x runtime.Execution) error {
	at := x.Timestamps.FinishedAt
	_, err := tx.Exec(`INSERT INTO tenant_days (day, tenant, executions, cpu_us, output_bytes) VALUES ($1, $2, 1, $3, $4)
		ON CONFLICT (day, tenant) DO UPDATE SET executions = tenant_days.executions + 1,
		cpu_us = tenant_days.cpu_us + excluded.cpu_us, output_bytes = tenant_days.output_bytes + excluded.output_bytes`,
		dayOf(at), x.Tenant, max(0, (x.Usage.User+x.Usage.System).Microseconds()), max(0, x.Usage.OutputBytes))
	if oldest := dayOf(at.AddDate(0, 0, -keepDays)); err == nil && oldest > s.oldestDay {
		if _, err = tx.Exec("DELETE FROM tenant_days WHERE day < $1", oldest); err == nil {
			s.oldestDay = oldest
		}
	}
	return err
}
