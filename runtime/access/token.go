package access

import (
	"time"

	"github.com/rockpool/rockpool/runtime"
)

// A Token is the record of a secret that callers present. The secret itself isn't stored; Hash is its
// SHA-256.
type Token struct {
	ID         string           `json:"id"`
	Kind       Kind             `json:"kind"` // KindToken or KindSession
	Name       string           `json:"name"`
	Subject    string           `json:"subject,omitempty"` // of a session: the person's identifier at the provider
	Tenant     runtime.TenantID `json:"tenant,omitempty"`
	AllTenants bool             `json:"allTenants,omitempty"`
	Role       Role             `json:"role"`
	CreatedAt  time.Time        `json:"createdAt"`
	CreatedBy  string           `json:"createdBy,omitempty"` // the id of the token that made it
	ExpiresAt  time.Time        `json:"expiresAt,omitzero"`  // zero: never
	RevokedAt  time.Time        `json:"revokedAt,omitzero"`  // zero: not revoked
	LastUsedAt time.Time        `json:"-"`                   // approximate; zero: never
	Hash       []byte           `json:"hash"`
}

// Principal returns the principal of callers with the token.
func (t Token) Principal() Principal {
	return Principal{Kind: t.Kind, ID: t.ID, Name: t.Name, Tenant: t.Tenant, AllTenants: t.AllTenants, Role: t.Role}
}

// Ended reports whether the token has been revoked or has expired at a time.
func (t Token) Ended(now time.Time) bool {
	return !t.RevokedAt.IsZero() || !t.ExpiresAt.IsZero() && !now.Before(t.ExpiresAt)
}
