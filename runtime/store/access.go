package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
)

// Tokens returns all tokens, oldest first.
func (s *Store) Tokens(ctx context.Context) ([]access.Token, error) {
	const doing = "list tokens"
	rows, err := s.reads.QueryContext(ctx, "SELECT value, used FROM tokens ORDER BY id")
	if err != nil {
		return nil, typed(err, doing)
	}
	defer rows.Close()
	var all []access.Token
	for rows.Next() {
		var value []byte
		var used sql.NullInt64
		var t access.Token
		if err := rows.Scan(&value, &used); err != nil {
			return nil, typed(err, doing)
		}
		if err := json.Unmarshal(value, &t); err != nil {
			return nil, typed(err, doing)
		}
		if used.Valid {
			t.LastUsedAt = time.UnixMilli(used.Int64)
		}
		all = append(all, t)
	}
	return all, typed(rows.Err(), doing)
}

// PutTokens stores tokens. It replaces stored ones except for their last use. After an error, some may be
// stored.
func (s *Store) PutTokens(ctx context.Context, tokens ...access.Token) error {
	values := make([][]byte, len(tokens))
	for i, t := range tokens {
		var err error
		if values[i], err = json.Marshal(t); err != nil {
			return err
		}
	}
	return s.write(ctx, "store tokens", func(tx *transaction) error {
		for i, t := range tokens {
			if _, err := tx.Exec("INSERT INTO tokens (id, value) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET value = excluded.value", t.ID, values[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// UseTokens stores when tokens were last used. If ctx ends first, it returns; the times may be
// stored or not.
func (s *Store) UseTokens(ctx context.Context, used map[string]time.Time) error {
	return s.rewrite(ctx, "store the last use of tokens", func(tx *transaction) error {
		for id, at := range used {
			if _, err := tx.Exec("UPDATE tokens SET used = $1 WHERE id = $2", at.UnixMilli(), id); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeleteTokens deletes tokens.
func (s *Store) DeleteTokens(ctx context.Context, ids []string) error {
	return s.write(ctx, "delete tokens", func(tx *transaction) error {
		for _, id := range ids {
			if _, err := tx.Exec("DELETE FROM tokens WHERE id = $1", id); err != nil {
				return err
			}
		}
		return nil
	})
}

// Tenants returns all stored tenants, ordered by id.
func (s *Store) Tenants(ctx context.Context) ([]runtime.Tenant, error) {
	const doing = "list tenants"
	rows, err := s.reads.QueryContext(ctx, "SELECT value FROM tenants ORDER BY id")
	if err != nil {
		return nil, typed(err, doing)
	}
	defer rows.Close()
	var all []runtime.Tenant
	for rows.Next() {
		var value []byte
		var t runtime.Tenant
		if err := rows.Scan(&value); err != nil {
			return nil, typed(err, doing)
		}
		if err := json.Unmarshal(value, &t); err != nil {
			return nil, typed(err, doing)
		}
		all = append(all, t)
	}
	return all, typed(rows.Err(), doing)
}

// PutTenant stores or replaces a tenant.
func (s *Store) PutTenant(ctx context.Context, t runtime.Tenant) error {
	value, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return s.write(ctx, "store a tenant", func(tx *transaction) error {
		_, err := tx.Exec("INSERT INTO tenants (id, value) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET value = excluded.value", string(t.ID), value)
		return err
	})
}

// DeleteTenant deletes a tenant.
func (s *Store) DeleteTenant(ctx context.Context, id runtime.TenantID) error {
	return s.write(ctx, "delete a tenant", func(tx *transaction) error {
		_, err := tx.Exec("DELETE FROM tenants WHERE id = $1", string(id))
		return err
	})
}
