package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/rockpool/rockpool/runtime"
	"github.com/rockpool/rockpool/runtime/access"
	"github.com/rockpool/rockpool/runtime/store/database"
)

// Tokens returns all tokens, oldest first.
func (s *Store) Tokens(ctx context.Context) ([]access.Token, error) {
	var all []access.Token
	err := s.db.Each(ctx, "list tokens", func(scan func(...any) error) error {
		var value []byte
		var used sql.NullInt64
		var t access.Token
		if err := scan(&value, &used); err != nil {
			return err
		}
		if used.Valid {
			t.LastUsedAt = time.UnixMilli(used.Int64)
		}
		err := json.Unmarshal(value, &t)
		all = append(all, t)
		return err
	}, "SELECT value, used FROM tokens ORDER BY id")
	return all, err
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
	return s.db.Write(ctx, "store tokens", func(tx *database.Tx) error {
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
	return s.db.Rewrite(ctx, "store the last use of tokens", func(tx *database.Tx) error {
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
	return s.db.Write(ctx, "delete tokens", func(tx *database.Tx) error {
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
	var all []runtime.Tenant
	err := s.db.Each(ctx, "list tenants", func(scan func(...any) error) error {
		var value []byte
		if err := scan(&value); err != nil {
			return err
		}
		var t runtime.Tenant
		err := json.Unmarshal(value, &t)
		all = append(all, t)
		return err
	}, "SELECT value FROM tenants ORDER BY id")
	return all, err
}

// PutTenant stores or replaces a tenant.
func (s *Store) PutTenant(ctx context.Context, t runtime.Tenant) error {
	value, err := json.Marshal(t)
	if err != nil {
		return err
	}
	return s.db.Exec(ctx, "store a tenant", "INSERT INTO tenants (id, value) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET value = excluded.value", string(t.ID), value)
}

// DeleteTenant deletes a tenant.
func (s *Store) DeleteTenant(ctx context.Context, id runtime.TenantID) error {
	return s.db.Exec(ctx, "delete a tenant", "DELETE FROM tenants WHERE id = $1", string(id))
}
