package access

import (
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A Token is what is known of a secret that callers show. The secret itself
// isn't kept: Hash is its SHA-256.
type Token struct {
	ID         string           `json:"id"`
	Kind       Kind             `json:"kind"` // KindToken or KindSession
	Name       string           `json:"name"`
	Subject    string           `json:"subject,omitempty"` // of a session: its person, as the provider knows it
	Tenant     runtime.TenantID `json:"tenant,omitempty"`
	AllTenants bool             `json:"allTenants,omitempty"`
	Role       Role             `json:"role"`
	CreatedAt  time.Time        `json:"createdAt"`
	CreatedBy  string           `json:"createdBy,omitempty"` // the id of the token that made it
	ExpiresAt  time.Time        `json:"expiresAt,omitzero"`  // zero: never
	RevokedAt  time.Time        `json:"revokedAt,omitzero"`  // zero: it wasn't
	LastUsedAt time.Time        `json:"-"`                   // about; zero: never
	Hash       []byte           `json:"hash"`
}

// Principal returns the caller who shows the token.
func (t Token) Principal() Principal {
	return Principal{Kind: t.Kind, ID: t.ID, Name: t.Name, Tenant: t.Tenant, AllTenants: t.AllTenants, Role: t.Role}
}

// Ended reports whether the token is no longer valid at a time.
func (t Token) Ended(now time.Time) bool {
	return !t.RevokedAt.IsZero() || !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt)
}
